"""The adapter of a Discord bot: listen, send, show, fetch (decision 0024)."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Final

from tertulia.core.buttons import Button
from tertulia.core.media import Media
from tertulia.core.source import Source
from tertulia.core.text.spans import FormattedText
from tertulia.errors import (
    AccountProblem,
    OutcomeUnknown,
    PlatformError,
    PlatformUnavailable,
    RateLimited,
    Refused,
)
from tertulia.platforms.base import (
    MALFORMED,
    Adapter,
    MenuEntry,
    Outgoing,
    Receive,
    StreamUpdate,
)
from tertulia.platforms.discord import gateway_events
from tertulia.platforms.discord.discord_markdown import format_text, render
from tertulia.platforms.discord.event_listener import EventListener, ask_until_answered, remember
from tertulia.platforms.discord.gateway_events import DiscordBot
from tertulia.platforms.discord.rest_api import (
    MessageGone,
    ReferenceRefused,
    RestApi,
    unreadable,
)
from tertulia.platforms.discord.slash_commands import SlashCommands
from tertulia.platforms.discord.socket_session import (
    DIRECT_MESSAGES,
    GUILD_MESSAGES,
    GUILDS,
    MESSAGE_CONTENT,
)
from tertulia.platforms.http_library import PathMissing
from tertulia.platforms.typing_tasks import TypingTasks

log = logging.getLogger("tertulia.platforms")

_SHOW_SECONDS: Final = 5.0
# Turns that end sooner show no typing.
_TYPING_DELAY_SECONDS: Final = 0.5
# Nobody is notified by a text, whatever is in it.
_NO_MENTIONS: Final = {"parse": [], "replied_user": False}
# The end of a draft. It tells people, and a later process, that the answer is not complete.
DRAFT_END: Final = "\n-# …"
# The flags of an application that may read the content of messages.
_CONTENT_FLAGS: Final = (1 << 18) | (1 << 19)
# View channels, send messages (also in threads), embed links, attach files, read history.
_PERMISSIONS: Final = (1 << 10) | (1 << 11) | (1 << 14) | (1 << 15) | (1 << 16) | (1 << 38)


class DiscordAdapter(Adapter):
    """The adapter of one bot."""

    name = "discord"
    listens_alone = True
    # Discord remembers the nonce of a message for a few minutes.
    idempotent_seconds = 120.0
    typing_seconds = 8.0  # Discord shows it for ten seconds
    draft_delay_seconds = 1.0

    def __init__(
        self,
        token: str,
        *,
        account: str = "",
        base_url: str = "https://discord.com/api/v10",
        gateway_url: str | None = None,
        reads_all: bool = True,
        streams: bool = True,
        draft_seconds: float = 2.0,
    ) -> None:
        self.account = account
        # Five messages or edits in five seconds are allowed in a channel; answers need some.
        self.draft_seconds = draft_seconds if streams else None
        self._token = token
        self._api = RestApi(token, base_url)
        self._gateway_url = gateway_url
        self._reads_all = reads_all
        self._bot: DiscordBot | None = None
        self._commands = SlashCommands(self._api)
        self._command_names: frozenset[str] = frozenset()
        self._private_chats: OrderedDict[str, str] = OrderedDict()
        self._drafts: OrderedDict[str, str] = OrderedDict()
        # Drafts that were refused, and drafts of which we do not know whether they arrived.
        self._without_drafts: OrderedDict[str, bool] = OrderedDict()
        self._uncertain: OrderedDict[str, bool] = OrderedDict()
        self._typing = TypingTasks()
        self._quiet_until: dict[str, float] = {}

    # -- listen

    async def listen(self, receive: Receive) -> None:
        """Hand over every update until cancelled; raise `AccountProblem` for a wrong token."""
        intents = GUILDS | GUILD_MESSAGES | DIRECT_MESSAGES
        bot = await ask_until_answered(self._own_bot, self.mark_problem)
        listener = EventListener(
            self._api,
            self._token,
            bot,
            self._commands,
            account=self.account or "",
            gateway_url=self._gateway_url,
            intents=intents | MESSAGE_CONTENT if self._reads_all else intents,
            command_names=self._command_names,
            on_frame=self.mark_heard,
            on_ready=self.mark_listening,
            on_problem=self.mark_problem,
        )
        try:
            await listener.run(self.cursor, receive)
        finally:
            self.mark_problem(self.state.problem)

    async def _own_bot(self) -> DiscordBot:
        if self._bot is None:
            user = await self._api.ask_object("GET", "/users/@me")
            try:
                application = await self._api.ask_object("GET", "/applications/@me")
            except (Refused, PathMissing):
                application = {}
            try:
                # An application and its bot have the same id, except for some from before 2016.
                self._bot = DiscordBot(
                    str(user["id"]), str(user["username"]), str(application.get("id", user["id"]))
                )
            except KeyError:
                raise PlatformUnavailable(
                    "Discord did not say which bot this is.", hint="Check base_url."
                ) from None
        return self._bot

    async def identify(self) -> str:
        """Ask Discord which bot this is, and whether it may read messages."""
        bot = await self._own_bot()
        flags = (await self._api.ask_object("GET", "/applications/@me")).get("flags")
        may_read = isinstance(flags, int) and flags & _CONTENT_FLAGS
        if self._reads_all and not may_read:
            raise AccountProblem(
                f"{bot.name} may not read the content of messages.",
                hint="Switch the Message Content Intent on in the Developer Portal, under Bot;"
                " or set message_content = false.",
            )
        invite = (
            f"https://discord.com/oauth2/authorize?client_id={bot.application_id}"
            f"&scope=bot+applications.commands&permissions={_PERMISSIONS}"
        )
        return f"{bot.name} (to add it to a server, open {invite} )"

    async def fill_menu(self, entries: tuple[MenuEntry, ...]) -> None:
        """Set the menu of commands; a menu that is refused does not keep the bot from listening."""
        self._command_names = frozenset(entry.name for entry in entries)
        bot = await self._own_bot()
        try:
            await self._commands.fill_menu(bot.application_id, entries)
        except AccountProblem:
            raise
        except PlatformError as problem:
            log.warning("discord: the menu of commands was not set: %s", problem.message)

    # -- send

    async def send(self, message: Outgoing) -> str | None:
        """Send one message and return its id; raise a `PlatformError` if it was not accepted."""
        channel_id = await self._channel_of(message.chat_id, message.thread_id)
        text = render(FormattedText(message.text, message.spans))
        body: dict[str, Any] = {"content": text, "allowed_mentions": _NO_MENTIONS}
        if message.buttons:
            body["components"] = [_button_row(message.buttons)]
        if message.media is not None:
            return _message_id(await self._create(channel_id, message, body))
        if message.replaces is not None:
            path = f"/channels/{channel_id}/messages/{message.replaces}"
            try:
                return _message_id(await self._api.send("PATCH", path, body))
            except (MessageGone, Refused) as problem:
                log.info("discord: a draft cannot be replaced: %s", problem.message)
        else:
            answer = await self._commands.answer(message, channel_id, body)
            if answer is not None:
                return _message_id(answer)
        return _message_id(await self._create(channel_id, message, body))

    async def close_buttons(self, message: Outgoing) -> None:
        """Replace the text of a message, and its buttons by none."""
        channel_id = await self._channel_of(message.chat_id, message.thread_id)
        text = render(FormattedText(message.text, message.spans))
        body = {"content": text, "allowed_mentions": _NO_MENTIONS, "components": []}
        await self._api.ask("PATCH", f"/channels/{channel_id}/messages/{message.replaces}", body)

    async def _create(self, channel_id: str, message: Outgoing, body: dict[str, Any]) -> Any:
        """Create a message; if only the reply is refused, create it without."""
        body |= {"nonce": _nonce(message.delivery), "enforce_nonce": True}
        if message.reply_to is not None and message.reply_to.isdecimal():
            body["message_reference"] = {
                "message_id": message.reply_to,
                "fail_if_not_exists": False,
            }
        file = None
        if message.media is not None:
            media_type = message.media.type or "application/octet-stream"
            file = (message.media.name or "file", message.content, media_type)
        path = f"/channels/{channel_id}/messages"
        try:
            return await self._api.send("POST", path, body, file=file)
        except ReferenceRefused:
            body.pop("message_reference", None)
        return await self._create_plain(path, body, file)

    async def _create_plain(self, path: str, body: dict[str, Any], file: Any) -> Any:
        try:
            return await self._api.send("POST", path, body, file=file)
        except ReferenceRefused as problem:
            raise Refused(problem.message, hint="It is refused in every form.") from None

    async def _channel_of(self, chat_id: str | None, thread_id: str | None) -> str:
        """Return the channel of a chat: its id, or after "@" the id of a person."""
        channel_id = thread_id or chat_id or ""
        if channel_id.startswith("@") and channel_id[1:].isdecimal():
            return await self._open_private_chat(channel_id[1:])
        if not channel_id.isdecimal():
            raise Refused(
                "This is no channel of Discord.",
                hint="Name its id, a number: discord:CHANNEL; or of a person: discord:@PERSON.",
            )
        return channel_id

    async def _open_private_chat(self, person_id: str) -> str:
        """Return the channel of the private chat with a person; opening it twice gives the same."""
        if person_id not in self._private_chats:
            body = {"recipient_id": person_id}
            answer = await self._api.ask_object("POST", "/users/@me/channels", body)
            channel_id = answer.get("id")
            if not isinstance(channel_id, str):
                raise unreadable()
            remember(self._private_chats, person_id, channel_id)
        return self._private_chats[person_id]

    # -- show

    async def show(self, source: Source, update: StreamUpdate) -> str | None:
        """Show that the bot is typing, and the answer so far; return the id of its message."""
        draft = _nonce(f"draft {update.turn} {update.message_id}")
        if update.kind in ("began", "typing", "tool"):
            is_first = update.kind == "began"
            self._typing.start(update.turn, lambda: self._type(source, is_first))
            if update.kind == "began" and update.is_retry:
                await self._try(source, self._find_draft(source, update.message_id, draft))
        elif update.kind == "ended":
            self._typing.stop(update.turn)
            if draft in self._uncertain:
                await self._try(source, self._remove_draft(source, draft))
        elif update.kind == "draft" and update.text.strip() and not self._api.is_busy:
            await self._try(source, self._draft(source, update, draft))
        draft_id = self._drafts.get(draft)
        if update.kind == "ended":
            self._drafts.pop(draft, None)
        return draft_id

    async def _type(self, source: Source, is_first: bool) -> None:
        await asyncio.sleep(_TYPING_DELAY_SECONDS if is_first else 0)
        path = f"/channels/{_channel(source)}/typing"
        await self._try(source, self._api.ask("POST", path, seconds=_SHOW_SECONDS, patience=0.0))

    async def _draft(self, source: Source, update: StreamUpdate, draft: str) -> None:
        if update.message_id is None or self._commands.is_command(update.message_id):
            return
        if draft in self._without_drafts:
            return
        # Of a long answer, the part that this message will have in the end.
        part = format_text(update.text, 2000 - len(DRAFT_END))[0]
        body: dict[str, Any] = {"content": render(part) + DRAFT_END}
        body["allowed_mentions"] = _NO_MENTIONS
        path = f"/channels/{_channel(source)}/messages"
        draft_id = self._drafts.get(draft)
        if draft_id is not None:
            await self._api.ask(
                "PATCH", f"{path}/{draft_id}", body, seconds=_SHOW_SECONDS, patience=0.0
            )
            return
        body |= {"nonce": draft, "enforce_nonce": True}
        body["message_reference"] = {"message_id": update.message_id, "fail_if_not_exists": False}
        remember(self._uncertain, draft, True)
        try:
            answer = await self._api.ask("POST", path, body, seconds=_SHOW_SECONDS, patience=0.0)
        except (Refused, ReferenceRefused):
            remember(self._without_drafts, draft, True)
            self._uncertain.pop(draft, None)
            raise
        remember(self._drafts, draft, _message_id(answer) or "")
        self._uncertain.pop(draft, None)

    async def _remove_draft(self, source: Source, draft: str) -> None:
        """Remove a draft whose id we did not get: the answer cannot replace it."""
        self._uncertain.pop(draft, None)
        path = f"/channels/{_channel(source)}/messages"
        body = {"content": DRAFT_END.strip(), "nonce": draft, "enforce_nonce": True}
        answer = await self._api.ask("POST", path, body, seconds=_SHOW_SECONDS)
        await self._api.ask("DELETE", f"{path}/{_message_id(answer)}", seconds=_SHOW_SECONDS)

    async def _find_draft(self, source: Source, message_id: str | None, draft: str) -> None:
        """Find the draft that a process has left which died in this turn."""
        if message_id is None or not message_id.isdecimal():
            return
        bot = await self._own_bot()
        path = f"/channels/{_channel(source)}/messages?after={message_id}&limit=100"
        for message in await self._api.ask("GET", path, seconds=_SHOW_SECONDS):
            reference = message.get("message_reference") or {}
            is_draft = str(message.get("content", "")).endswith(DRAFT_END.strip())
            if (
                gateway_events.is_own(message, bot)
                and reference.get("message_id") == message_id
                and is_draft
            ):
                remember(self._drafts, draft, str(message["id"]))

    async def _try(self, source: Source, work: Any) -> None:
        """Show something; a failure does no harm."""
        chat = _channel(source)
        if self._quiet_until.get(chat, 0.0) > time.monotonic():
            work.close()
            return
        try:
            async with asyncio.timeout(_SHOW_SECONDS):
                await work
        except RateLimited as problem:
            self._quiet_until[chat] = time.monotonic() + problem.retry_after
        except (PlatformError, TimeoutError, KeyError, TypeError, AttributeError) as problem:
            log.debug("discord: progress could not be shown: %s", type(problem).__name__)

    # -- files

    async def fetch(self, media: Media) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a file; its message is read again, because links expire."""
        parts = (media.source or "").split("/")
        if len(parts) != 3 or not all(part.isdecimal() for part in parts):
            raise Refused("This is no file of Discord.", hint="It may be gone.")
        channel_id, message_id, attachment_id = parts
        try:
            path = f"/channels/{channel_id}/messages/{message_id}"
            message = await self._api.ask_object("GET", path)
        except MessageGone as problem:
            raise Refused(problem.message, hint="The message was deleted.") from None
        try:
            url = gateway_events.file_url(message, attachment_id)
        except MALFORMED:
            url = None
        if url is None:
            raise Refused("Discord has no link to this file.", hint="It may be gone.")
        async for piece in self._api.download(url):
            yield piece

    async def close(self) -> None:
        """Close the connections."""
        await self._typing.close()
        await self._api.close()


def _channel(source: Source) -> str:
    return source.thread_id or source.chat_id


def _button_row(buttons: Sequence[Button]) -> dict[str, Any]:
    """Return buttons as a row of components: the first is the main one, the last says no."""
    styles = [1, *[2] * (len(buttons) - 2), 4]
    keys = [
        {"type": 2, "style": style, "label": button.label, "custom_id": button.value}
        for style, button in zip(styles, buttons, strict=False)
    ]
    return {"type": 1, "components": keys}


def _nonce(key: str) -> str:
    """Return a text of 25 characters that stands for a key."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:25]


def _message_id(answer: Any) -> str | None:
    number = answer.get("id") if isinstance(answer, dict) else None
    if not isinstance(number, str):
        raise OutcomeUnknown(
            "Discord gave the message no id.", hint="Look into the chat whether it arrived."
        )
    return number
