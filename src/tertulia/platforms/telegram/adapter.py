"""The adapter of a Telegram bot, by polling or by webhook.

The server keeps updates until they are acknowledged, so no cursor is stored here: a poll without an
offset gives all that nobody has acknowledged, and an offset is sent only right after its updates
are stored. An old offset would be dangerous: ids of updates begin anew after a quiet week, and
everything below an offset is forgotten.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import re
import time
import zlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Final
from weakref import WeakValueDictionary

from tertulia.core.backoff import JITTER, Backoff
from tertulia.core.buttons import Button
from tertulia.core.media import Media
from tertulia.core.source import Source
from tertulia.errors import (
    AccessDenied,
    AccountProblem,
    Error,
    PlatformError,
    PlatformUnavailable,
    RateLimited,
    Refused,
)
from tertulia.platforms.base import (
    MALFORMED,
    Adapter,
    HttpRequest,
    HttpResponse,
    MenuEntry,
    Outgoing,
    Receive,
    StreamUpdate,
)
from tertulia.platforms.telegram.bot_api import (
    BotApi,
    ChatMoved,
    FormatRefused,
    NotModified,
    PollConflict,
    ReplyRefused,
    UnreadableAnswer,
)
from tertulia.platforms.telegram.entities import entities_of, format_text
from tertulia.platforms.telegram.updates import (
    ALLOWED_UPDATES,
    Bot,
    chat_of,
    read_bot,
    read_update,
)
from tertulia.platforms.typing_tasks import TypingTasks

log = logging.getLogger("tertulia.platforms")

POLL_SECONDS: Final = 30
# A poll that takes so much longer has lost its connection.
_POLL_MARGIN_SECONDS: Final = 15
_BATCH: Final = 100
_SHOW_SECONDS: Final = 5.0
# Turns that end sooner show no typing: a call for each would double what the bot sends.
_TYPING_DELAY_SECONDS: Final = 1.0
_WEBHOOK_CHECK_SECONDS: Final = 60.0
_PHOTO_BYTES: Final = 10_000_000
_RECONNECT = Backoff(first=1, longest=30)
_CONFLICT = Backoff(first=3, longest=30)
_UPDATE_ID = re.compile(rb'"update_id"\s*:\s*(\d+)')
_COMMAND = re.compile(r"[a-z0-9_]{1,32}")
# The method and its parameter for each kind of file; anything else is sent as a document.
_METHODS: Final = {
    "image/jpeg": ("sendPhoto", "photo"),
    "image/png": ("sendPhoto", "photo"),
    "audio/ogg": ("sendVoice", "voice"),
    "audio/mpeg": ("sendAudio", "audio"),
    "audio/mp4": ("sendAudio", "audio"),
    "video/mp4": ("sendVideo", "video"),
}
_DOCUMENT: Final = ("sendDocument", "document")
_SECRET_HEADER: Final = "x-telegram-bot-api-secret-token"  # noqa: S105


class TelegramAdapter(Adapter):
    """The adapter of one bot. With a `webhook` address and its secret it does not poll."""

    name = "telegram"
    typing_seconds = 4.5  # Telegram shows it for five seconds

    def __init__(
        self,
        token: str,
        *,
        account: str = "",
        base_url: str = "https://api.telegram.org",
        webhook: tuple[str, str] | None = None,
        streams: bool = True,
        poll_seconds: int = POLL_SECONDS,
    ) -> None:
        self.account = account
        self.listens_alone = webhook is None
        self.needs_http = webhook is not None
        self.draft_seconds = 1.0 if streams else None
        self._api = BotApi(token, base_url)
        self._webhook = webhook
        self._poll_seconds = poll_seconds
        self._bot: Bot | None = None
        self._receive: Receive | None = None
        self._locks: WeakValueDictionary[object, asyncio.Lock] = WeakValueDictionary()
        self._typing = TypingTasks()
        self._without_drafts: set[str] = set()
        self._quiet_until: dict[str, float] = {}
        self._updated_at = 0.0  # when Telegram last called the webhook, in seconds

    # -- listen

    async def listen(self, receive: Receive) -> None:
        """Hand over every update until cancelled; raise `AccountProblem` for a wrong token."""
        self._receive = receive
        attempts = 0
        try:
            while True:
                try:
                    self._bot = read_bot(await self._api.ask("getMe"))
                    await (self._poll(receive) if self._webhook is None else self._keep_webhook())
                except AccountProblem:
                    raise
                except PlatformError as problem:
                    attempts = 1 if self.state.listening else attempts + 1
                    self.mark_problem(problem.message)
                    await self._pause(problem, _RECONNECT, attempts)
        finally:
            self._receive = None
            self.mark_problem(self.state.problem)

    async def _poll(self, receive: Receive) -> None:
        """Poll until cancelled; raise a `PlatformError` if the bot has to be connected anew."""
        await self._remove_webhook()
        offset: int | None = None
        attempts, limit, seconds = 0, _BATCH, 0  # the first poll shows at once whether it works
        while True:
            try:
                updates = await self._get_updates(offset, limit, seconds)
                # The answer acknowledged what was below the offset: it is not needed any more.
                offset, limit = None, _BATCH
                self.mark_listening()
                offset, is_complete = await self._hand_over_batch(updates, receive)
                if is_complete:
                    attempts, seconds = 0, self._poll_seconds
                    continue
                problem: Error = PlatformUnavailable("Not every update could be stored.")
            except AccountProblem:
                raise
            except UnreadableAnswer as unreadable:
                problem = unreadable
                offset, limit = _skip_unreadable(unreadable.body, offset, limit)
            except PlatformError as failure:
                self.mark_problem(failure.message)
                problem = failure
            attempts, seconds = attempts + 1, 0
            backoff = _CONFLICT if isinstance(problem, PollConflict) else _RECONNECT
            await self._pause(problem, backoff, attempts)
            if isinstance(problem, PollConflict):
                await self._remove_webhook()

    async def _remove_webhook(self) -> None:
        """Remove the webhook of another configuration: every poll would fail. What waits is kept.

        Servers without webhooks refuse it. If there is one all the same, the poll tells.
        """
        try:
            await self._api.ask("deleteWebhook", {"drop_pending_updates": False})
        except AccountProblem:
            raise
        except PlatformError as problem:
            log.warning("telegram: the webhook was not removed: %s", problem.message)

    async def _get_updates(self, offset: int | None, limit: int, seconds: int) -> list[Any]:
        parameters: dict[str, Any] = {
            "timeout": seconds,
            "limit": limit,
            "allowed_updates": ALLOWED_UPDATES,
        }
        if offset is not None:
            parameters["offset"] = offset
        updates = await self._api.ask(
            "getUpdates", parameters, seconds=seconds + _POLL_MARGIN_SECONDS
        )
        if not isinstance(updates, list):
            raise UnreadableAnswer(b"")
        return updates

    async def _hand_over_batch(
        self, updates: Sequence[Any], receive: Receive
    ) -> tuple[int | None, bool]:
        """Hand a batch over, chats beside each other, each chat in order.

        Return the offset that acknowledges the updates before the first one that could not be
        stored, and whether all were stored.
        """
        numbered = [update for update in updates if _number(update) is not None]
        if len(numbered) < len(updates):
            log.warning("telegram: %s updates had no id", len(updates) - len(numbered))
        chats: dict[object, list[dict[str, Any]]] = {}
        for update in numbered:
            chats.setdefault(chat_of(update), []).append(update)
        failed = await asyncio.gather(*(self._hand_over(chat, receive) for chat in chats.values()))
        first_failed = min((number for number in failed if number is not None), default=None)
        if first_failed is not None:
            return first_failed, False
        numbers = [_number(update) or 0 for update in numbered]
        return (max(numbers) + 1 if numbers else None), len(numbered) == len(updates)

    async def _hand_over(self, updates: Sequence[dict[str, Any]], receive: Receive) -> int | None:
        """Hand the updates of a chat over; return the id of the first that could not be stored."""
        for update in updates:
            try:
                await self._hand_over_one(update, receive)
            except Error as problem:
                log.warning("telegram: an update could not be stored, asking again: %s", problem)
                return _number(update)
        return None

    async def _hand_over_one(self, update: dict[str, Any], receive: Receive) -> None:
        assert self._bot is not None
        try:
            message = read_update(update, self._bot, self.account or "")
        except MALFORMED as problem:
            kinds = sorted(str(kind)[:40] for kind in update if kind != "update_id")
            log.warning(
                "telegram: update %s was not understood and is skipped (%s in %s)",
                _number(update), type(problem).__name__, kinds,
            )  # fmt: skip
            return
        if message is not None:
            await receive(message)
        if "callback_query" in update:
            await self._acknowledge_press(update["callback_query"])

    async def _acknowledge_press(self, press: Any) -> None:
        """End the progress bar of a button; a press that is too old cannot be acknowledged."""
        press_id = press.get("id") if isinstance(press, dict) else None
        if not isinstance(press_id, str):
            return
        parameters = {"callback_query_id": press_id}
        try:
            await self._api.ask("answerCallbackQuery", parameters, seconds=_SHOW_SECONDS)
        except PlatformError as problem:
            log.info("telegram: a press was not acknowledged: %s", problem.message)

    async def _pause(self, problem: Error, backoff: Backoff, attempts: int) -> None:
        seconds = backoff.delay(attempts, JITTER.random())
        if isinstance(problem, RateLimited):
            seconds = max(seconds, problem.retry_after)
        log.warning("telegram: %s Trying again in %.0f s.", problem.message, seconds)
        await asyncio.sleep(seconds)

    # -- the webhook

    async def _keep_webhook(self) -> None:
        """Tell Telegram the address of the webhook, and look from time to time that it stays."""
        assert self._webhook is not None
        url, secret = self._webhook
        is_set = False
        while True:
            info = await self._api.ask("getWebhookInfo")
            info = info if isinstance(info, dict) else {}
            problem = None
            if is_set and info.get("url") == url:
                problem = _webhook_problem(info, self._updated_at)
            else:
                parameters = {
                    "url": url,
                    "secret_token": secret,
                    "allowed_updates": ALLOWED_UPDATES,
                }
                await self._api.ask("setWebhook", parameters)
                is_set = True
            if problem is None:
                self.mark_listening()
            else:
                log.warning("telegram: %s", problem)
                self.mark_problem(problem)
            await asyncio.sleep(_WEBHOOK_CHECK_SECONDS)

    async def respond(self, request: HttpRequest) -> HttpResponse:
        """Accept an update that Telegram posts; raise `AccessDenied` without the secret."""
        if self._webhook is None:
            return await super().respond(request)
        secret = request.headers.get(_SECRET_HEADER, "").encode("utf-8", "replace")
        if not hmac.compare_digest(secret, self._webhook[1].encode()):
            raise AccessDenied(
                "The secret of the webhook is wrong.",
                hint="Only Telegram may call this address.",
            )
        if self._receive is None or self._bot is None:
            raise PlatformUnavailable(
                "telegram accepts no messages now.", hint="Try again in a moment."
            )
        self._updated_at = time.time()
        self.mark_listening()
        try:
            update = json.loads(request.body.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            update = None
        if not isinstance(update, dict):
            log.warning("telegram: an update was not understood and is skipped")
            return HttpResponse()
        async with self._locks.setdefault(chat_of(update), asyncio.Lock()):
            await self._hand_over_one(update, self._receive)
        return HttpResponse()

    # -- send

    async def send(self, message: Outgoing) -> str | None:
        """Send one message and return its id; raise a `PlatformError` if it was not accepted."""
        parameters = _address(message)
        if message.media is not None:
            return await self._send_file(message, parameters)
        parameters["text"] = message.text
        entities = entities_of(message.text, message.spans)
        if entities:
            parameters["entities"] = entities
        if message.buttons:
            parameters["reply_markup"] = _keyboard(message.buttons)
        if message.replaces is None:
            return await self._send("sendMessage", parameters)
        parameters["message_id"] = int(message.replaces)
        for name in ("reply_parameters", "message_thread_id"):
            parameters.pop(name, None)
        return await self._send("editMessageText", parameters)

    async def close_buttons(self, message: Outgoing) -> None:
        """Replace the text of a message; an edit without buttons takes them away."""
        parameters = {
            "chat_id": _address(message)["chat_id"],
            "message_id": int(message.replaces or 0),
            "text": message.text,
        }
        try:
            await self._api.ask("editMessageText", parameters)
        except NotModified:
            return
        except ChatMoved as moved:
            await self._api.ask("editMessageText", {**parameters, "chat_id": int(moved.chat_id)})

    async def _send_file(self, message: Outgoing, parameters: dict[str, Any]) -> str | None:
        assert message.media is not None
        media_type = message.media.type or "application/octet-stream"
        method, field = _METHODS.get(media_type, _DOCUMENT)
        if field == "photo" and len(message.content) > _PHOTO_BYTES:
            method, field = _DOCUMENT
        if message.text:
            parameters["caption"] = message.text
            parameters["caption_entities"] = entities_of(message.text, message.spans)
        file = (message.media.name or field, message.content, media_type)
        return await self._send(method, parameters, (field, file))

    async def _send(self, method: str, parameters: dict[str, Any], file: Any = None) -> str | None:
        """Send; if only the format, the reply or an old chat id is refused, send without it."""
        try:
            answer = await self._api.send(method, parameters, file=file)
        except FormatRefused as problem:
            log.warning("telegram: sent without formatting: %s", problem.message)
            plainer = {name: value for name, value in parameters.items() if "entities" not in name}
        except ReplyRefused:
            plainer = {
                name: value for name, value in parameters.items() if name != "reply_parameters"
            }
        except ChatMoved as moved:
            plainer = {**parameters, "chat_id": int(moved.chat_id)}
        except NotModified:
            return str(parameters["message_id"])
        else:
            number = answer.get("message_id") if isinstance(answer, dict) else None
            return None if number is None else str(number)
        if plainer == parameters:
            raise Refused("Telegram refuses this text in every form.", hint="See the log.")
        return await self._send(method, plainer, file)

    # -- show

    async def show(self, source: Source, update: StreamUpdate) -> str | None:
        """Show that the bot is typing, and in private chats the answer so far."""
        if update.kind in ("began", "typing", "tool"):
            is_first = update.kind == "began"
            self._typing.start(update.turn, lambda: self._type(source, is_first))
        elif update.kind == "ended":
            self._typing.stop(update.turn)
        elif update.kind == "draft" and update.text.strip() and self._takes_drafts(source):
            await self._try_to_show(source, "sendMessageDraft", _draft(update))
        return None

    def _takes_drafts(self, source: Source) -> bool:
        return source.chat_type == "dm" and source.chat_id not in self._without_drafts

    async def _type(self, source: Source, is_first: bool) -> None:
        await asyncio.sleep(_TYPING_DELAY_SECONDS if is_first else 0)
        await self._try_to_show(source, "sendChatAction", {"action": "typing"})

    async def _try_to_show(self, source: Source, method: str, parameters: dict[str, Any]) -> None:
        chat = source.chat_id
        if self._api.is_busy or self._quiet_until.get(chat, 0.0) > time.monotonic():
            return  # answers go first
        parameters = {"chat_id": _chat(chat), **_thread(source.thread_id), **parameters}
        try:
            await self._api.ask(method, parameters, seconds=_SHOW_SECONDS)
        except RateLimited as problem:
            self._quiet_until[chat] = time.monotonic() + problem.retry_after
        except PlatformUnavailable:
            pass  # the next update is shown again
        except PlatformError as problem:
            if method == "sendMessageDraft":
                log.info("telegram: no drafts in this chat: %s", problem.message)
                self._without_drafts.add(chat)

    # -- the rest

    async def fetch(self, media: Media) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a file; its link is asked for anew, because links expire."""
        answer = await self._api.ask("getFile", {"file_id": media.source})
        path = answer.get("file_path") if isinstance(answer, dict) else None
        if not isinstance(path, str):
            raise Refused("Telegram has no link to this file.", hint="It may be gone.")
        async for piece in self._api.download(path):
            yield piece

    async def identify(self) -> str:
        """Ask Telegram which bot this is."""
        bot = read_bot(await self._api.ask("getMe"))
        return f"@{bot.username} ({bot.name})"

    async def fill_menu(self, entries: tuple[MenuEntry, ...]) -> None:
        """Set the menu of commands; a menu that is refused does not keep the bot from listening."""
        commands = [
            {"command": entry.name, "description": entry.description[:256]}
            for entry in entries
            if _COMMAND.fullmatch(entry.name) and entry.description
        ]
        try:
            await self._api.ask("setMyCommands", {"commands": commands[:100]})
        except AccountProblem:
            raise
        except PlatformError as problem:
            log.warning("telegram: the menu of commands was not set: %s", problem.message)

    async def close(self) -> None:
        """Close the connections."""
        await self._typing.close()
        await self._api.close()


def _number(update: object) -> int | None:
    """Return the id of an update, or None if it has none."""
    number = update.get("update_id") if isinstance(update, dict) else None
    return number if isinstance(number, int) and not isinstance(number, bool) else None


def _skip_unreadable(body: bytes, offset: int | None, limit: int) -> tuple[int | None, int]:
    """Return the offset and the limit of the next poll after one that cannot be read.

    One update may spoil a whole batch: they are taken one by one, and that one is skipped. What
    has no id is skipped with the first one after it that has one.
    """
    match = _UPDATE_ID.search(body)
    if match is None:
        return offset, _BATCH
    if limit > 1:
        return int(match[1]), 1
    log.warning("telegram: update %s cannot be read and is skipped", int(match[1]))
    return int(match[1]) + 1, limit


def _webhook_problem(info: Mapping[str, Any], updated_at: float) -> str | None:
    """Return why Telegram cannot deliver: updates wait, and its last call of us failed."""
    waiting, failed_at = info.get("pending_update_count"), info.get("last_error_date")
    if not isinstance(waiting, int) or not isinstance(failed_at, int):
        return None
    if waiting < 1 or failed_at < updated_at:
        return None
    return (
        f"Telegram cannot deliver updates to the webhook ({waiting} waiting)."
        " Check that public_url leads to this gateway."
    )


def _draft(update: StreamUpdate) -> dict[str, Any]:
    part = format_text(update.text)[-1]  # of a long answer, the part that is being written
    return {
        # Any number but zero; the same one for all drafts of a turn.
        "draft_id": zlib.crc32(update.turn.encode()) & 0x7FFFFFFF or 1,
        "text": part.text,
        "entities": entities_of(part.text, part.spans),
        "can_stop": True,
    }


def _keyboard(buttons: Sequence[Button]) -> dict[str, Any]:
    """Return buttons as an inline keyboard, two in a row."""
    keys = [{"text": button.label, "callback_data": button.value} for button in buttons]
    return {"inline_keyboard": [keys[start : start + 2] for start in range(0, len(keys), 2)]}


def _address(message: Outgoing) -> dict[str, Any]:
    """Return the parameters that say where a message goes."""
    if message.chat_id is None:
        raise Refused("The message has no chat.", hint="Name one: telegram:CHAT.")
    address: dict[str, Any] = {"chat_id": _chat(message.chat_id), **_thread(message.thread_id)}
    if message.reply_to is not None and message.reply_to.isdigit():
        address["reply_parameters"] = {
            "message_id": int(message.reply_to),
            "allow_sending_without_reply": True,
        }
    return address


def _chat(chat_id: str) -> int | str:
    return int(chat_id) if chat_id.lstrip("-").isdecimal() else chat_id


def _thread(thread_id: str | None) -> dict[str, int]:
    # The topic General has the id 1, which is refused when it is sent.
    if thread_id is None or thread_id == "1" or not thread_id.isdecimal():
        return {}
    return {"message_thread_id": int(thread_id)}
