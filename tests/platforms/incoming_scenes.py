"""Chat apps on loopback with everything that can go wrong while an adapter receives.

Each scene has one server, one adapter for it, and one private chat in which a person writes. What a
platform cannot have, such as a socket that is closed with a code, stands in `unfit`, with the
reason.
"""

from __future__ import annotations

import copy
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from email.message import EmailMessage
from email.policy import SMTP
from typing import Any, ClassVar, Self

import pytest

from tertulia.core.backoff import Backoff
from tertulia.platforms.base import Adapter
from tertulia.platforms.discord import event_listener, socket_session
from tertulia.platforms.discord.adapter import DiscordAdapter
from tertulia.platforms.email import adapter as email_adapter
from tertulia.platforms.email import imap
from tertulia.platforms.matrix import MatrixSettings
from tertulia.platforms.matrix import adapter as matrix_adapter
from tertulia.platforms.matrix.adapter import MatrixAdapter
from tertulia.platforms.signal import adapter as signal_adapter
from tertulia.platforms.signal import daemon_client
from tertulia.platforms.signal.adapter import SignalAdapter
from tertulia.platforms.slack import adapter as slack_adapter
from tertulia.platforms.slack import socket_mode
from tertulia.platforms.slack.adapter import SlackAdapter
from tertulia.platforms.telegram import adapter as telegram_adapter
from tertulia.platforms.telegram.adapter import TelegramAdapter
from tertulia.platforms.whatsapp import adapter as whatsapp_adapter
from tertulia.platforms.whatsapp.adapter import WhatsAppAdapter
from tests.platforms.email.mail_gateway import new_adapter
from tests.servers import discord, matrix, signal, slack, telegram, whatsapp
from tests.servers.mail import LossyLine, MailServers, new_mail
from tests.servers.scripted_http import Fault, ScriptedServer

SHORT = Backoff(first=0.02, longest=0.2)
PAGE = b"<html><body>a hotel wants you to sign in</body></html>"
# What may stand in the place of a value in JSON.
WRONG_VALUES: Sequence[Any] = (
    None, True, 5, -1, 10**30, math.inf, "", "  ", "\0", "\ud800", [], [[]], {}, {"id": []},
)  # fmt: skip

# What cannot happen to an adapter that the platform calls over HTTP.
_CALLED: Mapping[str, str] = {
    **dict.fromkeys(
        ("silent", "closed", "closed with any code", "handshake refused"),
        "the platform calls us: there is no connection",
    ),
    **dict.fromkeys(
        ("16 MiB of text", "16 MiB around a text"), "it is refused (413), in a test of its own"
    ),
}


def spoiled(update: Any, values: Sequence[Any] = WRONG_VALUES) -> Iterator[Any]:
    """Yield copies of an update, each with one wrong or missing value, at every place of it."""
    for path in _paths(update):
        for value in values:
            yield _replaced(update, path, value)
        yield _replaced(update, path)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else ()
    for key, item in enumerate(value) if isinstance(value, list) else items:
        yield from _paths(item, (*path, key))


def _replaced(update: Any, path: tuple[Any, ...], *value: Any) -> Any:
    """Return a copy with another value at a path, or with none."""
    update = copy.deepcopy(update)
    *parents, last = path
    target = update
    for key in parents:
        target = target[key]
    if value:
        target[last] = value[0]
    else:
        del target[last]
    return update


class IncomingScene(ABC):
    """A chat app on loopback, and the adapter of one account of it."""

    name: ClassVar[str]
    unfit: ClassVar[Mapping[str, str]] = {}
    server: ScriptedServer
    adapter: Adapter
    close_codes: Sequence[int] = ()
    largest_bytes: ClassVar[int] = 500_000  # of what the platform sends in one request

    def __enter__(self) -> Self:
        self.server.__enter__()
        self.adapter = self.new_adapter()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.__exit__()
        violations = self.server.violations  # type: ignore[attr-defined]
        assert violations == [], violations

    @abstractmethod
    def new_adapter(self) -> Adapter: ...

    @abstractmethod
    def shorten(self, patch: pytest.MonkeyPatch) -> None:
        """Make the pauses of the adapter as short as tests want them."""

    def connect(self, url: str) -> None:
        """Tell the server the address of the gateway, if it calls it."""
        return

    def sign(self, body: bytes) -> tuple[str, Mapping[str, str]]:
        """Return the address and the headers with which the platform calls the gateway."""
        raise NotImplementedError

    def finish(self) -> None:
        """Wait until the server calls the gateway no more, before the gateway is stopped."""
        return

    @property
    def texts(self) -> list[str]:
        return list(self.server.texts)  # type: ignore[attr-defined]

    # -- updates

    @abstractmethod
    def update(self, text: str, **fields: Any) -> Any:
        """Return a new message of a person, which was not sent yet; `fields` are added to it."""

    @abstractmethod
    def send(self, *updates: Any) -> None:
        """Send updates in this order, in one batch if the platform has batches."""

    @abstractmethod
    def send_broken(self) -> None:
        """Send everything that is no update at all, and kinds of updates that nobody knows."""

    @abstractmethod
    def file(self, content: bytes | None, media_type: str) -> dict[str, Any]:
        """Return the fields of a message with a file; None is a file without end."""

    @abstractmethod
    def expire_files(self) -> None:
        """Let the links of all files expire."""

    # -- connections

    def silence(self) -> None:
        """Leave the connections open, and say nothing."""
        return

    def speak(self) -> None:
        """End the silence."""
        return

    def close(self, code: int | None) -> None:
        """Close the connections with a code; None: cut them."""
        return

    def refuse_handshake(self) -> None:
        """Refuse new connections from now on, with a page instead of an answer."""
        return

    def allow_handshake(self) -> None:
        self.server.mend()

    def move(self) -> None:
        """Go to another port, if the adapter can learn of it; else go away and come back."""
        self.server.refuse()
        self.server.open()

    @abstractmethod
    def revoke(self) -> None:
        """Refuse the account from now on."""

    @abstractmethod
    def restore(self) -> None:
        """Accept the account again."""


class TelegramScene(IncomingScene):
    name = "telegram"
    unfit: ClassVar[Mapping[str, str]] = {"closed with any code": "polls have no close codes"}
    server: telegram.TelegramServer

    def __init__(self) -> None:
        self.server = telegram.TelegramServer()

    def new_adapter(self) -> Adapter:
        return TelegramAdapter(
            telegram.TOKEN, base_url=self.server.url, poll_seconds=1, streams=False
        )

    def shorten(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(telegram_adapter, "_RECONNECT", SHORT)
        patch.setattr(telegram_adapter, "_CONFLICT", SHORT)
        patch.setattr(telegram_adapter, "_POLL_MARGIN_SECONDS", 1.0)

    def update(self, text: str, **fields: Any) -> Any:
        return {"message": self.server.message(42, text) | fields}

    def send(self, *updates: Any) -> None:
        with self.server.lock:  # a poll takes them all
            for update in updates:
                self.server.push(update)

    def send_broken(self) -> None:
        kinds: list[Any] = [{}, {"a_kind_of_next_year": {}}, {"callback_query": {}}]
        with self.server.lock:
            for body in (b"5", b"[]", b"null", b'{"update_id":'):
                self.server.next_update += 1
                self.server.push_raw(body, self.server.next_update)
            for kind in kinds:
                self.server.next_update += 1
                update = {"update_id": self.server.next_update, **kind}
                self.server.push_raw(json.dumps(update).encode(), self.server.next_update)
            self.server.next_update += 1

    def file(self, content: bytes | None, media_type: str) -> dict[str, Any]:
        file_id = self.server.add_file(content, media_type)
        return {"document": {"file_id": file_id, "mime_type": media_type, "file_size": 10}}

    def expire_files(self) -> None:
        self.server.expired |= set(self.server.files)

    def silence(self) -> None:
        self.server.silence()

    def speak(self) -> None:
        self.server.speak()

    def close(self, code: int | None) -> None:
        self.server.spoil("getUpdates", Fault(end="cut"), Fault(end="half"))

    def refuse_handshake(self) -> None:
        self.server.spoil("getUpdates", Fault(403, PAGE, "text/html", times=None))

    def revoke(self) -> None:
        self.server.revoke("123456789:another-token-of-the-same-bot-x")

    def restore(self) -> None:
        self.server.token = telegram.TOKEN


class TelegramWebhookScene(TelegramScene):
    name = "telegram"
    unfit = _CALLED
    secret = "secret-of-the-webhook"

    def new_adapter(self) -> Adapter:
        return TelegramAdapter(
            telegram.TOKEN, base_url=self.server.url, streams=False,
            webhook=("https://bot.example.org/platforms/telegram", self.secret),
        )  # fmt: skip

    def shorten(self, patch: pytest.MonkeyPatch) -> None:
        super().shorten(patch)
        patch.setattr(telegram_adapter, "_WEBHOOK_CHECK_SECONDS", 0.2)

    def connect(self, url: str) -> None:
        self.server.webhook_target = f"{url}/platforms/telegram"

    def sign(self, body: bytes) -> tuple[str, Mapping[str, str]]:
        headers = {"X-Telegram-Bot-Api-Secret-Token": self.secret}
        return self.server.webhook_target or "", headers


class DiscordScene(IncomingScene):
    name = "discord"
    server: discord.DiscordServer
    # Those after which the session goes on, and those after which a new one begins.
    close_codes = (1000, 1001, 1006, 1011, 4000, 4001, 4002, 4003, 4005, 4007, 4008, 4009, 4999)

    def __init__(self) -> None:
        self.server = discord.DiscordServer()
        self.server.heartbeat_millis = 500

    def new_adapter(self) -> Adapter:
        return DiscordAdapter(discord.TOKEN, base_url=self.server.base_url, streams=False)

    def shorten(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(event_listener, "_RECONNECT", SHORT)
        patch.setattr(socket_session, "_INVALID_SECONDS", (0.01, 0.02))

    def update(self, text: str, **fields: Any) -> Any:
        message = self.server.message(discord.DM, text)
        message.update(fields)  # it is read from the channel too
        return message

    def send(self, *updates: Any) -> None:
        for update in updates:
            self.server.dispatch("MESSAGE_CREATE", update)

    def send_broken(self) -> None:
        broken: list[Any] = [None, 5, [], {}, {"id": []}, {"ids": 5}, {"channel": 5}]
        for name in ("MESSAGE_UPDATE", "MESSAGE_DELETE", "MESSAGE_DELETE_BULK", "GUILD_CREATE",
                     "INTERACTION_CREATE", "CHANNEL_UPDATE", "THREAD_CREATE", "RESUMED",
                     "AN_EVENT_OF_NEXT_YEAR"):  # fmt: skip
            for data in broken:
                self.server.dispatch(name, data)
        for frame in (b"no json", b"[]", b'{"op": 99}', b'{"op": []}', b'{"op": 0, "t": []}',
                      b'{"op": 0, "t": "MESSAGE_CREATE", "s": null}', b"[" * 100_000):  # fmt: skip
            self.server.dispatch_raw(frame)

    def file(self, content: bytes | None, media_type: str) -> dict[str, Any]:
        self.server.is_expired = False
        return {"attachments": [self.server.attach(content, content_type=media_type)]}

    def expire_files(self) -> None:
        self.server.is_expired = True

    def silence(self) -> None:
        self.server.is_silent = True

    def speak(self) -> None:
        self.server.is_silent = False

    def close(self, code: int | None) -> None:
        if code in (None, 1006):
            self.server.cut()
        else:
            self.server.close(code or 0)

    def refuse_handshake(self) -> None:
        self.server.refuses_handshake = 503
        self.server.cut()

    def allow_handshake(self) -> None:
        self.server.refuses_handshake = None

    def move(self) -> None:
        self.server.move_gateway()

    def revoke(self) -> None:
        self.server.revoke()

    def restore(self) -> None:
        self.server.token = discord.TOKEN


class SlackScene(IncomingScene):
    name = "slack"
    server: slack.SlackServer
    close_codes = (1000, 1001, 1006, 1008, 1011, 1012, 4000, 4999)

    def __init__(self) -> None:
        self.server = slack.SlackServer()
        # Repeated for as long as a fault lasts.
        self.server.pauses = (0.1,) * 1000
        self.server.ack_seconds = 1.0

    def new_adapter(self) -> Adapter:
        return SlackAdapter(
            slack.BOT_TOKEN, app_token=slack.APP_TOKEN, base_url=f"{self.server.url}/api",
            connections=2,
        )  # fmt: skip

    def shorten(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(slack_adapter, "_RECONNECT", SHORT)
        patch.setattr(slack_adapter, "_CHECK_SECONDS", 0.2)
        patch.setattr(socket_mode, "_RECONNECT", SHORT)
        patch.setattr(socket_mode, "_STABLE_SECONDS", 0.0)
        patch.setattr(socket_mode, "_PING_SECONDS", 0.2)
        patch.setattr(socket_mode, "_PONG_SECONDS", 0.5)
        patch.setattr(socket_mode, "_HELLO_SECONDS", 0.5)

    def update(self, text: str, **fields: Any) -> Any:
        message = self.server.message("D1", slack.ANA, slack.escape(text))
        return self.server.payload({**message, "channel_type": "im", **fields})

    def send(self, *updates: Any) -> None:
        for update in updates:
            self.server.push_payload(update)

    def send_broken(self) -> None:
        events: list[Any] = [
            None, 5, [], {}, {"type": []}, {"type": "a_kind_of_next_year"},
            {"type": "message", "subtype": "message_changed", "message": 5},
            {"type": "reaction_added", "item": []},
        ]  # fmt: skip
        for event in events:
            self.server.push(event)
        for text in ('{"envelope_id": "ENVELOPE", "payload": {"text": "',
                     '{"envelope_id": "ENVELOPE", "type": "slash_commands", "payload": {}}',
                     '{"envelope_id": "ENVELOPE", "type": "events_api", "payload": [5]}',
                     '{"envelope_id": "ENVELOPE", "type": [], "payload": {}}',
                     '{"envelope_id": "ENVELOPE", "payload": ' + "[" * 100_000):  # fmt: skip
            self.server.push_payload(text)

    def file(self, content: bytes | None, media_type: str) -> dict[str, Any]:
        return {"files": [self.server.add_file(content, media_type)], "subtype": "file_share"}

    def expire_files(self) -> None:
        self.server.expired |= set(self.server.files)

    def silence(self) -> None:
        self.server.says_hello = False
        self.server.mute()

    def speak(self) -> None:
        self.server.says_hello, self.server.is_silent = True, False

    def close(self, code: int | None) -> None:
        self.server.on_sockets(close=None if code == 1006 else code)

    def refuse_handshake(self) -> None:
        self.server.spoil("link", Fault(403, PAGE, "text/html", times=None))
        self.server.on_sockets()

    def revoke(self) -> None:
        self.server.revoke()

    def restore(self) -> None:
        self.server.restore()


class SlackEventsScene(SlackScene):
    unfit = _CALLED

    def new_adapter(self) -> Adapter:
        return SlackAdapter(
            slack.BOT_TOKEN, signing_secret=slack.SIGNING_SECRET, base_url=f"{self.server.url}/api"
        )

    def connect(self, url: str) -> None:
        self.server.http_target = f"{url}/platforms/slack"
        self.server.ack_seconds = 30.0  # no fault of this scene needs a late acknowledgement

    def sign(self, body: bytes) -> tuple[str, Mapping[str, str]]:
        return self.server.http_target or "", self.server.sign(body)

    def finish(self) -> None:
        self.server.wait_settled()


class WhatsAppScene(IncomingScene):
    name = "whatsapp"
    largest_bytes = 3_000_000
    unfit: ClassVar[Mapping[str, str]] = {
        name: _CALLED[name] for name in _CALLED if name != "handshake refused"
    }
    server: whatsapp.WhatsAppServer

    def __init__(self) -> None:
        self.server = whatsapp.WhatsAppServer()

    def new_adapter(self) -> Adapter:
        return WhatsAppAdapter(
            whatsapp.TOKEN, app_secret=whatsapp.APP_SECRET, verify_token=whatsapp.VERIFY_TOKEN,
            phone_number_id=whatsapp.NUMBER_ID, base_url=f"{self.server.url}/v23.0",
        )  # fmt: skip

    def shorten(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(whatsapp_adapter, "_RECONNECT", SHORT)
        patch.setattr(whatsapp_adapter, "_CHECK_SECONDS", 0.1)
        patch.setattr(whatsapp_adapter, "_STATUS_SECONDS", 0.01)

    def connect(self, url: str) -> None:
        self.server.webhook = f"{url}/platforms/whatsapp"

    def sign(self, body: bytes) -> tuple[str, Mapping[str, str]]:
        return self.server.webhook or "", self.server.sign(body)

    def finish(self) -> None:
        self.server.wait_accepted()

    def update(self, text: str, **fields: Any) -> Any:
        if "image" in fields:
            fields["image"]["caption"] = text
        message = self.server.message(whatsapp.ANA, text, **fields)
        contacts = [whatsapp.contact(whatsapp.ANA)]
        return whatsapp.notification(self.server.value(messages=[message], contacts=contacts))

    def send(self, *updates: Any) -> None:
        entries = [update.get("entry") for update in updates]
        if all(isinstance(entry, list) for entry in entries):
            entries = [item for entry in entries for item in entry]
            self.server.push({**updates[0], "entry": entries})
        else:
            for update in updates:
                self.server.push(update)

    def send_broken(self) -> None:
        for payload in (b"", b"{", b"5", b"[1]", b"\xff\xfe", b"[" * 100_000):
            self.server.push(payload)
        kinds: list[dict[str, Any]] = [
            {"type": "kind_of_next_year"}, {"type": []}, {"type": "edit", "edit": 5},
            {"type": "contacts", "contacts": [5]}, {"type": "location", "location": []},
            {"type": "interactive", "interactive": {"button_reply": 5}},
        ]  # fmt: skip
        messages = [self.server.message(whatsapp.ANA, None, **kind) for kind in kinds]
        statuses: list[Any] = [None, 5, {}, {"status": []}, {"status": "failed", "errors": 5}]
        self.server.notify_app(messages=[*messages, None, 5, []], statuses=statuses, errors=[5])

    def file(self, content: bytes | None, media_type: str) -> dict[str, Any]:
        image = {"id": self.server.add_file(content, media_type), "mime_type": media_type}
        return {"type": "image", "image": image}

    def expire_files(self) -> None:
        self.server.expired |= set(self.server.files)

    def refuse_handshake(self) -> None:
        self.server.spoil("number", Fault(403, PAGE, "text/html", times=None))

    def revoke(self) -> None:
        self.server.token = "another-token"

    def restore(self) -> None:
        self.server.token = whatsapp.TOKEN


class SignalScene(IncomingScene):
    name = "signal"
    unfit: ClassVar[Mapping[str, str]] = {
        "closed with any code": "a stream of events has no close codes"
    }
    server: signal.SignalServer

    def __init__(self) -> None:
        self.server = signal.SignalServer()
        self.server.keepalive_seconds = 0.1

    def new_adapter(self) -> Adapter:
        return SignalAdapter(signal.NUMBER, base_url=self.server.url)

    def shorten(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(signal_adapter, "_RECONNECT", SHORT)
        patch.setattr(daemon_client, "SILENCE_SECONDS", 1.0)

    def update(self, text: str, **fields: Any) -> Any:
        envelope = self.server.envelope()
        message = {"timestamp": envelope["timestamp"], "message": text, **fields}
        return {"envelope": {**envelope, "dataMessage": message}, "account": signal.NUMBER}

    def send(self, *updates: Any) -> None:
        for update in updates:
            self.server.push_raw(json.dumps(update).encode())

    def send_broken(self) -> None:
        for event in (b"no json", b"[]", b"5", b'{"exception": {"message": "x"}}', b"[" * 100_000):
            self.server.push_raw(event)
        contents: list[dict[str, Any]] = [
            {"editMessage": 5}, {"editMessage": {}}, {"a_kind_of_next_year": {}},
            {"dataMessage": []}, {"dataMessage": {"reaction": 5}},
            {"dataMessage": {"remoteDelete": {}}}, {"syncMessage": {}},
        ]  # fmt: skip
        for content in contents:
            self.server.push(self.server.envelope(**content))

    def file(self, content: bytes | None, media_type: str) -> dict[str, Any]:
        return {"attachments": [self.server.attach(content, contentType=media_type)]}

    def expire_files(self) -> None:
        self.server.files.clear()

    # What is written while a connection ends is lost, which the documentation says: each fault is
    # over when the adapter has made a new connection.

    def silence(self) -> None:
        self.server.is_silent = True

    def speak(self) -> None:
        self.server.is_silent = False
        self._wait_connected()

    def close(self, code: int | None) -> None:
        connections = self.server.count("events")
        self.server.cut()
        self._wait_connected(connections)

    def refuse_handshake(self) -> None:
        self.server.spoil("events", Fault(503, PAGE, "text/html", times=None))
        self.server.cut()

    def allow_handshake(self) -> None:
        super().allow_handshake()
        self._wait_connected()

    def move(self) -> None:
        super().move()
        self._wait_connected()

    def revoke(self) -> None:
        self.server.number = "+15550199"
        self.server.cut()

    def restore(self) -> None:
        self.server.number = signal.NUMBER

    def _wait_connected(self, connections: int | None = None) -> None:
        if connections is None:
            connections = self.server.count("events")
        self.server.wait(lambda: self.server.count("events") > connections)
        self.server.wait_listening()


class EmailScene(IncomingScene):
    """A real Dovecot; each mail has another author, because many mails of one are a program's."""

    name = "email"
    unfit: ClassVar[Mapping[str, str]] = {
        "closed with any code": "IMAP has no close codes",
        "endless file": "a mail has a size",
        "expired file": "a file is part of its mail; a deleted mail has a test of its own",
        "any wrong value": "a mail is no JSON; its fields have a test of their own",
    }

    def __init__(self) -> None:
        self.mail = MailServers()
        self._stack = ExitStack()
        self._count = 0
        self._is_revoked = False
        self._waiting: list[Any] = []

    def __enter__(self) -> Self:
        self._stack.enter_context(self.mail)
        self.line = self._stack.enter_context(LossyLine(self.mail.dovecot.port))
        self.address = self.mail.add_mailbox()
        self.adapter = self.new_adapter()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def new_adapter(self) -> Adapter:
        return new_adapter(self.mail, self.address, imap_url=self.line.url)

    def shorten(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(email_adapter, "_RECONNECT", SHORT)
        patch.setattr(email_adapter, "_IDLE_SECONDS", 0.3)
        patch.setattr(imap, "REPLY_SECONDS", 3.0)

    @property
    def texts(self) -> list[str]:
        return [mail.text for mail in self.mail.sent]

    def update(self, text: str, **fields: Any) -> EmailMessage:
        self._count += 1
        padding = fields.pop("padding", "")
        mail = new_mail(
            self.address, text.encode("utf-8", "replace").decode(),
            sender=f"Person <p{self._count}@example.com>", **fields,
        )  # fmt: skip
        if padding:
            mail.add_attachment(padding.encode(), maintype="a", subtype="b", filename="pad")
        return mail

    def send(self, *updates: Any) -> None:
        if self._is_revoked:  # the mailbox is filled through the same account
            self._waiting += updates
            return
        for mail in updates:
            policy = SMTP.clone(max_line_length=900)
            self.mail.deliver(self.address, mail.as_bytes(policy=policy))

    def send_broken(self) -> None:
        for content in (b"no header", b"From: <>\r\n\r\nx", b"From: \xff\xfe@\r\n\r\nx",
                        b"From: a@b.example\r\nContent-Type: multipart/mixed\r\n\r\nx",
                        b"From: a@b.example\r\nContent-Type: x-of/next-year\r\n\r\nx",
                        b"From: a@b.example\r\nMessage-ID: <>\r\n\r\nx"):  # fmt: skip
            self.mail.deliver(self.address, content)

    def file(self, content: bytes | None, media_type: str) -> dict[str, Any]:
        return {"files": (("photo.png", media_type, content or b""),)}

    def expire_files(self) -> None:
        self.mail.delete_all(self.address)

    def silence(self) -> None:
        self.line.silence()

    def close(self, code: int | None) -> None:
        self.line.cut()

    def refuse_handshake(self) -> None:
        self.line.refuse()

    def allow_handshake(self) -> None:
        self.line.open()

    def move(self) -> None:
        self.line.refuse()
        self.line.open()

    def revoke(self) -> None:
        self.mail.revoke(self.address)
        self._is_revoked = True
        self.line.cut()

    def restore(self) -> None:
        self.mail.restore(self.address)
        self._is_revoked = False
        self.send(*self._waiting)
        self._waiting.clear()


class MatrixScene(IncomingScene):
    """A homeserver that can send what a real one cannot; the rest has tests against a real one."""

    name = "matrix"
    unfit: ClassVar[Mapping[str, str]] = {"closed with any code": "polls have no close codes"}
    server: matrix.MatrixServer

    def __init__(self) -> None:
        self.server = matrix.MatrixServer()

    def new_adapter(self) -> Adapter:
        settings = MatrixSettings(base_url=self.server.url, stream="off")
        return MatrixAdapter(settings, matrix.TOKEN)

    def shorten(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(matrix_adapter, "_RECONNECT", SHORT)
        patch.setattr(matrix_adapter, "_SILENCE_SECONDS", 1.0)

    def update(self, text: str, **fields: Any) -> Any:
        padding = {"padding": fields.pop("padding")} if "padding" in fields else {}
        if "url" in fields:
            fields["filename"] = "photo.png"
        return {**self.server.event(text, **fields), **padding}

    def send(self, *updates: Any) -> None:
        self.server.push(updates)

    def send_broken(self) -> None:
        for body in (b"", b"{", b"5", b"[1]", b"null", b"\xff\xfe", b"{}", b"[" * 100_000, PAGE):
            self.server.push_raw(body)
        # Without texts: with a wrong cursor it would begin anew, as with a real homeserver.
        for answer in spoiled(self.server.answer(), (None, 5, [], [[]], {})):
            self.server.push_raw(json.dumps(answer).encode())
        self.server.push([self.server.event("in a room without an id")], room_id="")
        relations: list[Any] = [
            5, [], {"rel_type": []}, {"rel_type": "m.replace"},
            {"rel_type": "m.thread", "event_id": []}, {"m.in_reply_to": 5},
            {"m.in_reply_to": {"event_id": []}},
        ]  # fmt: skip
        contents: list[dict[str, Any]] = [
            *({"m.relates_to": relation} for relation in relations),
            {"m.mentions": {"user_ids": 5}}, {"m.new_content": 5},
            {"msgtype": "m.image", "info": {"size": -1}, "url": []},
        ]  # fmt: skip
        events = [self.server.event("", **content) for content in contents]
        kinds = ("m.room.redaction", "m.reaction", "m.sticker", "m.room.encrypted",
                 "m.room.member", "m.room.tombstone", "m.of.next.year")  # fmt: skip
        events += [{**self.server.event(""), "type": kind, "content": 5} for kind in kinds]
        self.server.push([None, 5, [], {}, *events])

    def file(self, content: bytes | None, media_type: str) -> dict[str, Any]:
        url = self.server.add_file(content, media_type)
        return {"msgtype": "m.image", "url": url, "info": {"mimetype": media_type, "size": 10}}

    def expire_files(self) -> None:
        self.server.files.clear()

    def silence(self) -> None:
        self.server.is_silent = True

    def speak(self) -> None:
        self.server.is_silent = False

    def close(self, code: int | None) -> None:
        self.server.spoil("sync", Fault(end="cut"), Fault(end="half"))

    def refuse_handshake(self) -> None:
        self.server.spoil("sync", Fault(403, PAGE, "text/html", times=None))

    def revoke(self) -> None:
        self.server.token = "another-token"

    def restore(self) -> None:
        self.server.token = matrix.TOKEN


SCENES: Mapping[str, type[IncomingScene]] = {
    "telegram": TelegramScene,
    "telegram-webhook": TelegramWebhookScene,
    "discord": DiscordScene,
    "slack": SlackScene,
    "slack-events": SlackEventsScene,
    "whatsapp": WhatsAppScene,
    "signal": SignalScene,
    "email": EmailScene,
    "matrix": MatrixScene,
}
