"""The adapter of a business number on the WhatsApp Cloud API, which calls this gateway.

WhatsApp repeats a notification for days until it is answered with 200. All nodes may listen at
once: a repeated message has the same id. Several numbers of one app share one webhook; a message
is handed to the adapter of its number.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Final
from weakref import WeakSet, WeakValueDictionary

from tertulia.core.backoff import JITTER, Backoff
from tertulia.core.buttons import Button
from tertulia.core.media import Media
from tertulia.core.source import Source
from tertulia.core.text.split import length
from tertulia.errors import (
    AccessDenied,
    AccountProblem,
    Error,
    PlatformError,
    PlatformUnavailable,
    RateLimited,
    Refused,
    StaleWrite,
    TooLarge,
)
from tertulia.platforms.base import (
    MALFORMED,
    Adapter,
    HttpRequest,
    HttpResponse,
    Outgoing,
    Receive,
    StreamUpdate,
)
from tertulia.platforms.typing_tasks import TypingTasks
from tertulia.platforms.whatsapp import markup, notifications
from tertulia.platforms.whatsapp.graph_api import (
    FIRST_PAUSE,
    GraphApi,
    ParameterRefused,
    describe_error,
)
from tertulia.platforms.whatsapp.known_ids import KnownIds

log = logging.getLogger("tertulia.platforms")

_RECONNECT = Backoff(first=1, longest=30)
_CHECK_SECONDS: Final = 60.0
_SHOW_SECONDS: Final = 5.0
_LONGEST_PAUSE: Final = 64.0
_MAX_CALLBACK_DATA: Final = 512
# A status may come before our own record of the send; it is tried again a moment later.
_STATUS_TRIES: Final = 4
_STATUS_SECONDS: Final = 0.1
_MEGABYTE: Final = 1_000_000
# The kind of message and the limit for each type of file; anything else is a document.
_KINDS: Final = {
    "image/jpeg": ("image", 5), "image/png": ("image", 5),
    "audio/aac": ("audio", 16), "audio/amr": ("audio", 16), "audio/mpeg": ("audio", 16),
    "audio/mp4": ("audio", 16), "audio/ogg": ("audio", 16),
    "video/mp4": ("video", 16), "video/3gpp": ("video", 16),
}  # fmt: skip
_DOCUMENT_MEGABYTES: Final = 100

# The adapters of each app in this process; the key is a hash of the app's secret.
_APPS: dict[bytes, WeakSet[WhatsAppAdapter]] = {}


class WhatsAppAdapter(Adapter):
    """The adapter of one business number."""

    name = "whatsapp"
    needs_http = True
    # Meta: "Webhooks payloads can be up to 3MB". One that is refused is repeated for days.
    request_bytes = 4 * 2**20
    typing_seconds = 20.0  # WhatsApp shows it for 25 seconds

    def __init__(
        self,
        token: str,
        *,
        phone_number_id: str,
        app_secret: str,
        verify_token: str,
        account: str = "",
        base_url: str = "https://graph.facebook.com/v23.0",
    ) -> None:
        self.account = account
        self.phone_number_id = phone_number_id
        self.loop: asyncio.AbstractEventLoop | None = None  # in which it listens
        self._api = GraphApi(token, base_url)
        self._app_secret = app_secret
        self._verify_token = verify_token
        self._known_ids = KnownIds()
        self._receive: Receive | None = None
        self._locks: WeakValueDictionary[object, asyncio.Lock] = WeakValueDictionary()
        self._limits: dict[str, int] = {}  # refusals in a row because of the rate, by chat
        self._typing = TypingTasks()
        self._quiet_until = 0.0
        app = hashlib.sha256(f"{base_url} {app_secret}".encode()).digest()
        self._siblings = _APPS.setdefault(app, WeakSet())
        self._siblings.add(self)

    # -- listen

    async def listen(self, receive: Receive) -> None:
        """Accept notifications until cancelled; raise `AccountProblem` for a refused token."""
        self.loop = asyncio.get_running_loop()
        # A notification can be stored while the Graph API does not answer.
        self._receive = receive
        attempts = 0
        try:
            while True:
                try:
                    await self.identify()
                except AccountProblem:
                    raise
                except PlatformError as problem:
                    attempts += 1
                    seconds = _RECONNECT.delay(attempts, JITTER.random())
                    self.mark_listening(
                        f"Messages are received, but answers may not be sent: {problem.message}"
                    )
                    log.warning("whatsapp: %s Trying again in %.1f s.", problem.message, seconds)
                    await asyncio.sleep(seconds)
                else:
                    attempts = 0
                    self.mark_listening()
                    await asyncio.sleep(_CHECK_SECONDS)
        finally:
            self._receive = None
            self.mark_problem(None)

    async def respond(self, request: HttpRequest) -> HttpResponse:
        """Answer the question whose address this is, or accept a notification.

        Raises `AccessDenied` without the verify token or Meta's signature, and an `Error` if
        something could not be stored; then WhatsApp sends it all again.
        """
        if request.method == "GET":
            return self._verify(request)
        self._check_signature(request)
        self.mark_heard()
        try:
            payload = json.loads(request.body.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            payload = None
        if not isinstance(payload, dict):
            log.warning("whatsapp: a notification was not understood and is skipped")
            return HttpResponse()
        problem: Error | None = None
        for value in notifications.values_of(payload):
            adapter = self._adapter_of(value)
            if adapter is not None:
                problem = await adapter.hand_over(value) or problem
        if problem is not None:
            raise problem
        return HttpResponse()

    def _verify(self, request: HttpRequest) -> HttpResponse:
        token = request.query.get("hub.verify_token", "").encode("utf-8", "replace")
        is_right = hmac.compare_digest(token, self._verify_token.encode())
        if request.query.get("hub.mode") != "subscribe" or not is_right:
            raise AccessDenied(
                "The verify token is wrong.", hint="Set the same one at Meta and in verify_token."
            )
        challenge = request.query.get("hub.challenge", "")
        return HttpResponse(body=challenge.encode("utf-8", "replace"))

    def _check_signature(self, request: HttpRequest) -> None:
        digest = hmac.new(self._app_secret.encode(), request.body, hashlib.sha256).hexdigest()
        signature = request.headers.get("x-hub-signature-256", "").encode("utf-8", "replace")
        if not hmac.compare_digest(signature, f"sha256={digest}".encode()):
            raise AccessDenied(
                "The signature of the notification is wrong.",
                hint="Only Meta may call this address. Check app_secret.",
            )

    def _adapter_of(self, value: Mapping[str, Any]) -> WhatsAppAdapter | None:
        number_id = notifications.number_id_of(value)
        loop = asyncio.get_running_loop()
        # Another gateway may run in this process, in a loop of its own.
        siblings = (adapter for adapter in self._siblings if adapter.loop is loop)
        for adapter in (self, *siblings):
            if adapter.phone_number_id == number_id:
                return adapter
        log.warning("whatsapp: a notification for a number without an account is skipped")
        return None

    # -- notifications

    async def hand_over(self, value: Mapping[str, Any]) -> Error | None:
        """Store the messages and outcomes of a value; return the problem if some were not."""
        receive = self._receive
        if receive is None:
            return PlatformUnavailable(
                "whatsapp accepts no messages now.", hint="It is sent again."
            )
        for error in notifications.items_of(value, "errors"):
            log.warning("whatsapp reports: %s", describe_error(error))
        problem: Error | None = None
        failed: set[object] = set()
        for message in notifications.items_of(value, "messages"):
            chat = _chat_of(message)
            if chat in failed:
                continue  # it must not overtake the one that was not stored
            try:
                async with self._locks.setdefault(chat, asyncio.Lock()):
                    await self._hand_over_message(message, value, receive)
            except Error as failure:
                log.warning("whatsapp: a message was not stored, it is sent again: %s", failure)
                problem = failure
                failed.add(chat)
        for status in notifications.items_of(value, "statuses"):
            try:
                await self._hand_over_status(status, receive)
            except Error as failure:
                log.info("whatsapp: an outcome was not stored, it is sent again: %s", failure)
                problem = failure
        return problem

    async def _hand_over_message(
        self, message: Any, value: Mapping[str, Any], receive: Receive
    ) -> None:
        try:
            sender = notifications.sender_of(message, value)
            known_id, number = await self._known_ids.resolve(
                sender.user_id, sender.number, self.remember_id
            )
            known_sender = notifications.KnownSender(
                known_id=known_id, number=number, user_id=sender.user_id, name=sender.name
            )
            update = notifications.read_message(message, value, known_sender, self.account or "")
        except MALFORMED as problem:
            log.warning(
                "whatsapp: a message was not understood and is skipped (%s)",
                type(problem).__name__,
            )
            return
        if update is None:
            log.info("whatsapp: a message of another kind is skipped")
            return
        await receive(update)

    async def _hand_over_status(self, status: Any, receive: Receive) -> None:
        try:
            outcome = notifications.read_status(status)
        except MALFORMED as problem:
            log.warning(
                "whatsapp: a status was not understood and is skipped (%s)", type(problem).__name__
            )
            return
        if outcome is None:
            return
        for attempt in range(1, _STATUS_TRIES + 1):
            try:
                await receive(outcome)
            except StaleWrite:
                if attempt == _STATUS_TRIES:
                    raise
                await asyncio.sleep(_STATUS_SECONDS * attempt)
            else:
                return

    # -- send

    async def send(self, message: Outgoing) -> str | None:
        """Send one message and return its id; raise a `PlatformError` if it was not accepted."""
        if message.chat_id is None:
            raise Refused("The message has no chat.", hint="Name one: whatsapp:NUMBER.")
        body: dict[str, Any] = {
            "messaging_product": "whatsapp", **_address(message.chat_id),
            **await self._content(message),
        }  # fmt: skip
        if len(message.delivery) <= _MAX_CALLBACK_DATA:
            body["biz_opaque_callback_data"] = message.delivery
        if message.reply_to is not None:
            body["context"] = {"message_id": message.reply_to}
        try:
            answer = await self._send(body)
        except RateLimited as problem:
            refusals = self._limits[message.chat_id] = self._limits.get(message.chat_id, 0) + 1
            pause = min(FIRST_PAUSE * 4.0 ** min(refusals - 1, 9), _LONGEST_PAUSE)
            text = problem.message
        else:
            self._limits.pop(message.chat_id, None)
            return _message_id(answer)
        raise RateLimited(text, hint="It is sent later.", retry_after=pause)

    async def _send(self, body: dict[str, Any]) -> dict[str, Any]:
        """Send; if the message that it replies to is refused, send without the reply."""
        path = f"{self.phone_number_id}/messages"
        try:
            return await self._api.send(path, body)
        except ParameterRefused as problem:
            text, has_reply = problem.message, "context" in body
        if has_reply:
            return await self._send({name: body[name] for name in body if name != "context"})
        if body["type"] == "interactive":
            log.warning("whatsapp: sent without buttons: %s", text)
            plain = _text_content(body["interactive"]["body"]["text"])
            return await self._send(
                {name: body[name] for name in body if name != "interactive"} | plain
            )
        raise Refused(text, hint="Check the number of the person.")

    async def _content(self, message: Outgoing) -> dict[str, Any]:
        """Return the text of a message, or its file, which is uploaded first."""
        text = markup.to_markup(message.text, message.spans)
        if message.media is None:
            if not text.strip():
                raise Refused("The message has no text.", hint="Send a text or a file.")
            is_group = _address(message.chat_id or "")["recipient_type"] == "group"
            if message.buttons and not is_group:
                return _interactive_content(text, message.buttons)
            return _text_content(text)
        media_type = message.media.type or "application/octet-stream"
        size = len(message.content)
        kind, megabytes = _KINDS.get(media_type, ("document", _DOCUMENT_MEGABYTES))
        if size > megabytes * _MEGABYTE or (kind == "audio" and text):
            # As a document it may be larger, and an audio message has no caption.
            kind, megabytes = "document", _DOCUMENT_MEGABYTES
        if size > megabytes * _MEGABYTE:
            raise TooLarge(
                f"WhatsApp takes files up to {megabytes} MB.", hint="Send a smaller file."
            )
        if length(text, "utf16") > markup.MAX_CAPTION:
            raise TooLarge("The caption is too long for WhatsApp.", hint="Send it as a text.")
        name = message.media.name or "file"
        file_id = await self._api.upload(
            f"{self.phone_number_id}/media", (name, message.content, media_type)
        )
        content: dict[str, Any] = {"id": file_id}
        if text:
            content["caption"] = text
        if kind == "document":
            content["filename"] = name
        return {"type": kind, kind: content}

    # -- show

    async def show(self, source: Source, update: StreamUpdate) -> str | None:
        """Mark the person's message as read, and show that an answer is being written."""
        if update.kind in ("began", "typing", "tool") and update.message_id is not None:
            message_id = update.message_id
            self._typing.start(update.turn, lambda: self._type(message_id))
        elif update.kind == "ended":
            self._typing.stop(update.turn)
        return None

    async def _type(self, message_id: str) -> None:
        if self._quiet_until > time.monotonic():
            return
        body = {
            "messaging_product": "whatsapp", "status": "read", "message_id": message_id,
            "typing_indicator": {"type": "text"},
        }  # fmt: skip
        path = f"{self.phone_number_id}/messages"
        try:
            await self._api.ask("POST", path, body=body, seconds=_SHOW_SECONDS)
        except RateLimited as problem:
            self._quiet_until = time.monotonic() + problem.retry_after
        except PlatformError as problem:
            log.debug("whatsapp: progress could not be shown: %s", problem.message)

    # -- the rest

    async def fetch(self, media: Media) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a file; its address is asked for anew, because addresses expire."""
        number = {"phone_number_id": self.phone_number_id}
        answer = await self._api.ask("GET", media.source or "", params=number)
        url = answer.get("url")
        if not isinstance(url, str):
            raise Refused("WhatsApp has no address of this file.", hint="It may be gone.")
        async for piece in self._api.download(url):
            yield piece

    async def identify(self) -> str:
        """Ask WhatsApp which number this is."""
        fields = {"fields": "display_phone_number,verified_name"}
        try:
            answer = await self._api.ask("GET", self.phone_number_id, params=fields)
        except Refused as problem:
            refusal = problem.message
        else:
            return _identity(answer) or self.phone_number_id
        raise Refused(
            refusal,
            hint="Check phone_number_id: it is the ID that the page API Setup shows below the"
            " number, not the number itself.",
        )

    async def close(self) -> None:
        """Close the connections."""
        self._siblings.discard(self)
        await self._typing.close()
        await self._api.close()


def _identity(answer: Mapping[str, Any]) -> str:
    number, name = answer.get("display_phone_number"), answer.get("verified_name")
    return f"{number} ({name})" if name else str(number or "")


def _chat_of(message: object) -> object:
    """Return the chat of a message, whose messages are handed over one after the other."""
    if not isinstance(message, Mapping):
        return None
    names = ("group_id", "user_id", "from_user_id", "from")
    ids = (message.get(name) for name in names)
    return next((value for value in ids if isinstance(value, str)), None)


def _address(chat_id: str) -> dict[str, str]:
    """Return the fields that say where a message goes: a number, an id, or a group."""
    if chat_id.lstrip("+").isdecimal():
        return {"recipient_type": "individual", "to": chat_id}
    country, dot, _ = chat_id.partition(".")
    if dot and len(country) == 2 and country.isupper():
        return {"recipient_type": "individual", "recipient": chat_id}
    return {"recipient_type": "group", "to": chat_id}


def _text_content(text: str) -> dict[str, Any]:
    return {"type": "text", "text": {"body": text, "preview_url": False}}


def _interactive_content(text: str, buttons: Sequence[Button]) -> dict[str, Any]:
    """Return a text with reply buttons; they stay in the chat, WhatsApp cannot remove them."""
    replies = [
        {
            "type": "reply",
            "reply": {"id": f"{notifications.BUTTON_PREFIX}{button.value}", "title": button.label},
        }
        for button in buttons
    ]
    content = {"type": "button", "body": {"text": text}, "action": {"buttons": replies}}
    return {"type": "interactive", "interactive": content}


def _message_id(answer: Mapping[str, Any]) -> str | None:
    try:
        return str(answer["messages"][0]["id"])
    except (KeyError, IndexError, TypeError):
        return None
