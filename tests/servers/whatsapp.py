"""A WhatsApp Cloud API on loopback, driven by a script: the Graph API and its notifications.

It keeps the promises of the real one that an adapter depends on: a notification is signed and
repeated until it is answered with 200, `entry`, `changes`, `messages` and `statuses` are lists, a
message that was accepted may fail later, a status may come before the response, and free text is
accepted only within 24 hours after the person's last message. `tests/servers/test_whatsapp.py`
holds it against pywa.

    with WhatsAppServer() as server:
        server.webhook = "http://127.0.0.1:8000/platforms/whatsapp"
        server.write("34600111222", "hello")
        server.wait_sent(1)
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import itertools
import json
from collections.abc import AsyncGenerator, Mapping
from typing import Any, NamedTuple

import httpx2

from tests.servers.scripted_http import Fault, Request, Response, ScriptedServer

TOKEN = "EAAfake-access-token-nobody-may-see"
APP_SECRET = "fake-app-secret-nobody-may-see"
VERIFY_TOKEN = "fake-verify-token-nobody-may-see"
NUMBER_ID = "106540352242922"
NUMBER = "15550783881"
ANA = "34600111222"
ANA_ID = "ES.13491208655302741918"

# The fields of a message; anything else is noted as a violation.
_FIELDS = {"messaging_product", "recipient_type", "to", "recipient", "type", "context",
           "biz_opaque_callback_data"}  # fmt: skip
_KINDS = {
    "text": {"body", "preview_url"},
    "image": {"id", "caption"},
    "video": {"id", "caption"},
    "audio": {"id"},
    "document": {"id", "caption", "filename"},
    "interactive": {"type", "body", "action"},
}


class Sent(NamedTuple):
    """A message that the business sent."""

    to: str
    text: str
    message_id: str
    kind: str = "text"
    reply_to: str | None = None
    file: tuple[str, str, bytes] | None = None
    delivery: str | None = None
    buttons: tuple[tuple[str, str], ...] = ()


class Notification:
    """A notification on its way, and how often it was sent."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.sends = 0
        self.is_accepted = False


class Refusal(Exception):
    """A refusal of the Graph API."""

    def __init__(self, status: int, code: int, message: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class WhatsAppServer(ScriptedServer):
    """The state of one app with its business numbers, and what was sent."""

    def __init__(self) -> None:
        super().__init__()
        self.token = TOKEN
        self.numbers = {NUMBER_ID: NUMBER}
        self.webhook: str | None = None
        self.sent: list[Sent] = []
        self.read: list[str] = []
        self.typing: list[str] = []
        self.violations: list[str] = []
        self.notifications: list[Notification] = []
        self.closed: set[str] = set()  # people who wrote more than 24 hours ago
        self.absent: set[str] = set()  # numbers that are not on WhatsApp
        self.groups: set[str] = set()  # they take no buttons
        self.messages: set[str] = set()
        self.files: dict[str, bytes | None] = {}
        self.file_types: dict[str, str] = {}
        self.expired: set[str] = set()
        self.sends_statuses = False
        self.status_first = False  # the status comes before the response
        self._uploads: dict[str, tuple[str, str, bytes]] = {}
        self._ids = itertools.count(1)
        self._retry_seconds = 0.02
        self._room = asyncio.Semaphore(16)

    # -- people

    def write(self, number: str | None, text: str | None = None, **fields: Any) -> dict[str, Any]:
        """Write a message as a person, notify the app, and return it."""
        message = self.message(number, text, **fields)
        self.notify_app(messages=[message], contacts=[contact(number, fields.get("user_id"))])
        return message

    def message(self, number: str | None, text: str | None = None, **fields: Any) -> dict[str, Any]:
        """Return a message of a person, without any notification."""
        message: dict[str, Any] = {
            "id": self.new_id(), "timestamp": "1700000000", "type": "text",
        }  # fmt: skip
        if number is not None:
            message["from"] = number
        if text is not None:
            message["text"] = {"body": text}
        return message | fields

    def press(self, sent: Sent, button_id: str, *, number: str = ANA) -> dict[str, Any]:
        """Press a button of a message, whatever its id was; return the message of the press."""
        message = self.pressed(sent, button_id, number=number)
        self.notify_app(messages=[message], contacts=[contact(number)])
        return message

    def pressed(self, sent: Sent, button_id: str, *, number: str = ANA) -> dict[str, Any]:
        """Return the message of a press, without any notification."""
        reply = {"type": "button_reply", "button_reply": {"id": button_id, "title": "?"}}
        context = {"from": NUMBER, "id": sent.message_id}
        return self.message(number, None, type="interactive", interactive=reply, context=context)

    def new_id(self) -> str:
        """Return a new id of a message."""
        message_id = f"wamid.{next(self._ids):08d}"
        self.messages.add(message_id)
        return message_id

    def value(self, number_id: str = NUMBER_ID, **parts: Any) -> dict[str, Any]:
        """Return the value of a change, with messages, statuses and contacts."""
        own = self.numbers.get(number_id, NUMBER)
        metadata = {"display_phone_number": own, "phone_number_id": number_id}
        return {"messaging_product": "whatsapp", "metadata": metadata, **parts}

    def notify_app(self, number_id: str = NUMBER_ID, **parts: Any) -> Notification:
        """Send a notification with one entry and one change."""
        return self.push(notification(self.value(number_id, **parts)))

    def push(self, payload: Any) -> Notification:
        """Send a payload, or bytes as they are, until they are accepted."""
        body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        pushed = Notification(body)
        with self.lock:
            self.notifications.append(pushed)
        if self.webhook is not None:
            self._loop.call_soon_threadsafe(self._start, pushed)
        return pushed

    def _start(self, pushed: Notification) -> None:
        task = asyncio.ensure_future(self._post(pushed))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())

    def sign(self, body: bytes) -> dict[str, str]:
        """Return the headers with which Meta signs a notification."""
        digest = hmac.new(APP_SECRET.encode(), body, hashlib.sha256).hexdigest()
        return {"content-type": "application/json", "x-hub-signature-256": f"sha256={digest}"}

    def report(self, sent: Sent, status: str, **fields: Any) -> Notification:
        """Report what became of a message: sent, delivered, read or failed."""
        return self.notify_app(statuses=[self.status(sent, status, **fields)])

    def status(self, sent: Sent, status: str, **fields: Any) -> dict[str, Any]:
        """Return the status of a message."""
        outcome = {
            "id": sent.message_id, "status": status, "timestamp": "1700000001",
            "recipient_id": sent.to,
        }  # fmt: skip
        if sent.delivery is not None:
            outcome["biz_opaque_callback_data"] = sent.delivery
        return outcome | fields

    def add_file(self, content: bytes | None, media_type: str = "image/jpeg") -> str:
        """Store a file that people sent, and return its id; None is a file without end."""
        file_id = f"9000{next(self._ids)}"
        self.files[file_id] = content
        self.file_types[file_id] = media_type
        return file_id

    # -- for tests

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.sent]

    def wait_sent(self, count: int) -> list[Sent]:
        """Wait until so many messages were sent, and return them."""
        self.wait(lambda: len(self.sent) >= count)
        return list(self.sent)

    def wait_accepted(self) -> None:
        """Wait until all notifications are accepted."""
        self.wait(lambda: all(pushed.is_accepted for pushed in self.notifications))

    # -- notifications

    async def _post(self, pushed: Notification) -> None:
        headers = self.sign(pushed.body)
        while not pushed.is_accepted:
            pushed.sends += 1
            try:
                async with self._room, httpx2.AsyncClient(timeout=10, verify=False) as client:
                    target = self.webhook or ""
                    answer = await client.post(target, content=pushed.body, headers=headers)
                pushed.is_accepted = answer.status_code == 200
            except httpx2.HTTPError:
                pass
            self.notify()
            if not pushed.is_accepted:
                await asyncio.sleep(self._retry_seconds)

    # -- requests

    def operation_of(self, request: Request) -> str:
        path = request.path.partition("?")[0].removeprefix("/v23.0").strip("/")
        first, _, last = path.partition("/")
        if first == "files":
            return "files"
        if last:
            return last
        return "number" if first in self.numbers else "media_address"

    async def respond(self, request: Request) -> Response:
        path = request.path.partition("?")[0].removeprefix("/v23.0").strip("/")
        if request.headers.get("authorization") != f"Bearer {self.token}":
            return _error(Refusal(401, 190, "Error validating access token"))
        try:
            if request.operation == "files":
                return self._download(path.rpartition("/")[2])
            result = await self._call(request, path)
        except Refusal as refusal:
            return _error(refusal)
        self.notify()
        return Response(body=json.dumps(result).encode())

    async def _call(self, request: Request, path: str) -> dict[str, Any]:
        number_id = path.partition("/")[0]
        if request.operation == "media_address":
            return self._media_address(path)
        if number_id not in self.numbers:
            raise Refusal(400, 100, "Unsupported request")
        if request.operation == "number":
            return {"id": number_id, "display_phone_number": "+1 555-078-3881",
                    "verified_name": "Acme"}  # fmt: skip
        fields = request.fields()
        if fields.get("messaging_product") != "whatsapp":
            raise Refusal(400, 100, "(#100) The parameter messaging_product is required.")
        if request.operation == "media":
            return self._upload(request, fields)
        if request.operation != "messages":
            raise Refusal(400, 2500, "Unknown path components")
        if fields.get("status") == "read":
            return self._mark_read(fields)
        return await self._send(fields, number_id)

    def _mark_read(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        if fields["message_id"] not in self.messages:
            raise Refusal(400, 100, "Invalid parameter")
        self.read.append(fields["message_id"])
        if "typing_indicator" in fields:
            self.typing.append(fields["message_id"])
        return {"success": True}

    async def _send(self, fields: dict[str, Any], number_id: str) -> dict[str, Any]:
        kind = fields.get("type", "text")
        to = fields.get("to") or fields.get("recipient")
        unknown = set(fields) - _FIELDS - {kind}
        if unknown or kind not in _KINDS or set(fields.get(kind, {})) - _KINDS.get(kind, set()):
            self.violations.append(f"a message with {sorted(unknown)} of kind {kind}")
        if not to:
            raise Refusal(400, 131008, "(#131008) Required parameter is missing")
        if to in self.absent:
            raise Refusal(400, 131026, "Message undeliverable")
        if to in self.closed:
            raise Refusal(400, 131047, "Re-engagement message")
        content = fields[kind]
        text = content.get("body") or content.get("caption") or ""
        buttons: tuple[tuple[str, str], ...] = ()
        if kind == "interactive":
            text, buttons = content["body"]["text"], check_buttons(content)
            if to in self.groups:
                raise Refusal(400, 131009, "Parameter value is not valid")
        if kind == "text" and not text:
            raise Refusal(400, 131008, "(#131008) Required parameter is missing")
        if len(text.encode("utf-16-le")) // 2 > (4096 if kind == "text" else 1024):
            raise Refusal(400, 100, "Param text['body'] must be at most 4096 characters long.")
        reply_to = (fields.get("context") or {}).get("message_id")
        if reply_to is not None and reply_to not in self.messages:
            raise Refusal(400, 131009, "Parameter value is not valid")
        has_file = kind not in ("text", "interactive")
        file = self._uploads.get(content["id"]) if has_file else None
        if has_file and file is None:
            raise Refusal(400, 131053, "Media upload error")
        sent = Sent(to, text, self.new_id(), kind, reply_to, file,
                    fields.get("biz_opaque_callback_data"), buttons)  # fmt: skip
        with self.changed:
            self.sent.append(sent)
        if self.sends_statuses or self.status_first:
            self.notify_app(number_id, statuses=[self.status(sent, "sent")])
        if self.status_first:
            await asyncio.sleep(0.3)
        return {
            "messaging_product": "whatsapp", "contacts": [{"input": to, "wa_id": to}],
            "messages": [{"id": sent.message_id}],
        }  # fmt: skip

    # -- files

    def _upload(self, request: Request, fields: Mapping[str, Any]) -> dict[str, Any]:
        name, content = fields["file"]
        file_id = f"7000{next(self._ids)}"
        self._uploads[file_id] = (name, fields["type"], content)
        return {"id": file_id}

    def _media_address(self, file_id: str) -> dict[str, Any]:
        if file_id not in self.files:
            raise Refusal(400, 100, "Unsupported get request")
        content = self.files[file_id]
        return {
            "id": file_id, "url": f"{self.url}/files/{file_id}?ext=1700000000&hash=secret-hash",
            "mime_type": self.file_types[file_id], "messaging_product": "whatsapp",
            "file_size": 0 if content is None else len(content), "sha256": "",
        }  # fmt: skip

    def _download(self, file_id: str) -> Response:
        if file_id in self.expired or file_id not in self.files:
            return Response(404, b"not found", "text/plain")
        content = self.files[file_id]
        if content is not None:
            return Response(body=content, content_type=self.file_types[file_id])
        return Response(stream=_endless(), content_type="application/octet-stream")


def check_buttons(content: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the reply buttons of a message; raise `Refusal` if WhatsApp would refuse them."""
    replies = [button["reply"] for button in content["action"]["buttons"]]
    is_valid = content["type"] == "button" and 1 <= len(replies) <= 3
    for reply in replies:
        is_valid &= 1 <= len(reply["title"]) <= 20 and 1 <= len(reply["id"]) <= 256
    is_valid &= len({reply["title"] for reply in replies}) == len(replies)
    if not is_valid:
        raise Refusal(400, 131009, "Parameter value is not valid")
    return tuple((reply["title"], reply["id"]) for reply in replies)


def notification(*values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a notification with an entry and a change for each value."""
    changes = [{"field": "messages", "value": value} for value in values]
    entries = [{"id": "102290129340398", "changes": [change]} for change in changes]
    return {"object": "whatsapp_business_account", "entry": entries}


def contact(number: str | None, user_id: str | None = None) -> dict[str, Any]:
    """Return a contact as notifications have it."""
    ids = {"wa_id": number, "user_id": user_id}
    return {"profile": {"name": "Ana"}} | {name: ids[name] for name in ids if ids[name]}


def refusal(
    code: int, *, status: int = 400, times: int | None = 1, message: str = "a secret text"
) -> Fault:
    """Return a fault that is a refusal in the form of the Graph API."""
    return Fault(status, _error_body(code, message), times=times)


def _error(problem: Refusal) -> Response:
    return Response(problem.status, _error_body(problem.code, str(problem)))


def _error_body(code: int, message: str) -> bytes:
    error = {"message": message, "type": "OAuthException", "code": code, "fbtrace_id": "A1",
             "error_data": {"messaging_product": "whatsapp", "details": message}}  # fmt: skip
    return json.dumps({"error": error}).encode()


async def _endless() -> AsyncGenerator[bytes, None]:
    while True:
        yield b"x" * 65536
