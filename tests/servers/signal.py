"""A daemon of signal-cli on loopback, driven by a script.

As the real one it answers every call with HTTP 200, errors included, writes each message to every
listener and forgets it, and loses what comes while nobody listens unless it receives on connection
(`--receive-mode=on-connection`): then Signal's servers keep it until the next listener comes.

    with SignalServer() as server:
        server.write("hello")
        server.wait_sent(1)
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import urllib.parse
from collections.abc import AsyncGenerator, Mapping
from typing import Any, NamedTuple

from tests.servers.scripted_http import Fault, Request, Response, ScriptedServer

NUMBER = "+15550100"
OWN_UUID = "00000000-0000-4000-8000-000000000100"
ANA_UUID = "a0000000-0000-4000-8000-000000000042"
ANA_NUMBER = "+15550142"
GROUP = "Z3JvdXAtb2YtdGhlLWdhcmRlbi1vZi10aGUtd29ybGQ="
KNOWN_METHODS: dict[str, set[str]] = {
    "send": {"account", "recipient", "groupId", "message", "textStyle", "attachments",
             "quoteAuthor", "quoteTimestamp", "quoteMessage", "editTimestamp"},
    "sendTyping": {"account", "recipient", "groupId", "stop"},
    "getAttachment": {"account", "id", "recipient", "groupId"},
    "getUserStatus": {"account", "recipient"},
    "listAccounts": {"account"},
    "version": {"account"},
}  # fmt: skip
_STYLE = re.compile(r"(\d+):(\d+):(BOLD|ITALIC|STRIKETHROUGH|SPOILER|MONOSPACE)")


class Sent(NamedTuple):
    """A message that the account sent."""

    chat: str
    text: str
    timestamp: int
    styles: tuple[str, ...] = ()
    quote: int | None = None
    file: tuple[str, bytes] | None = None
    edits: int | None = None


class RpcError(Exception):
    """An error of JSON-RPC."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.body = {"code": code, "message": message, "data": data}


class SignalServer(ScriptedServer):
    """One account, the people who write to it, and everything that was sent."""

    def __init__(self) -> None:
        super().__init__()
        self.number = NUMBER
        self.sent: list[Sent] = []
        self.typing: list[tuple[str, bool]] = []
        self.violations: list[str] = []
        self.files: dict[str, bytes | None] = {}
        self.groups = {GROUP}
        self.unregistered: set[str] = set()
        self.lists_accounts = True
        self.delays_headers = False
        self.keepalive_seconds = 15.0
        self.is_silent = False
        self.listeners: list[asyncio.Queue[bytes | None]] = []
        self.kept: list[bytes] = []  # at Signal's servers, until somebody listens
        self._time = 1_700_000_000_000

    # -- people

    def write(
        self, text: str | None = None, *, group: str | None = None, **fields: Any
    ) -> dict[str, Any]:
        """Write a message as Ana, and return its envelope; `fields` are added to the message."""
        message: dict[str, Any] = {
            "timestamp": self._next_time(), "message": text, "expiresInSeconds": 0,
            "viewOnce": False,
        }  # fmt: skip
        if group is not None:
            message["groupInfo"] = {
                "groupId": group, "groupName": "Garden", "revision": 1, "type": "DELIVER",
            }  # fmt: skip
        message.update(fields)
        envelope = self.envelope(message["timestamp"], dataMessage=message)
        self.push(envelope)
        return envelope

    def envelope(self, timestamp: int | None = None, **content: Any) -> dict[str, Any]:
        """Return an envelope from Ana."""
        return {
            "source": ANA_NUMBER, "sourceNumber": ANA_NUMBER, "sourceUuid": ANA_UUID,
            "sourceName": "Ana Díaz", "sourceDevice": 1,
            "timestamp": timestamp or self._next_time(), **content,
        }  # fmt: skip

    def push(self, envelope: Any) -> None:
        """Write an envelope to every listener."""
        self.push_raw(json.dumps({"envelope": envelope, "account": self.number}).encode())

    def push_raw(self, data: bytes) -> None:
        """Write an event as it is, in JSON or not."""
        self._loop.call_soon_threadsafe(self._deliver, data)

    def attach(self, content: bytes | None, **fields: Any) -> dict[str, Any]:
        """Return an attachment with some content; None is a file without end."""
        number = f"file{len(self.files)}"
        self.files[number] = content
        size = 10 if content is None else len(content)
        return {"id": number, "contentType": "image/png", "filename": "a.png", "size": size,
                **fields}  # fmt: skip

    def cut(self) -> None:
        """End every connection of a listener."""
        self._loop.call_soon_threadsafe(self._end_listeners)

    def wait_listening(self, count: int = 1) -> None:
        """Wait until so many listeners are there."""
        self.wait(lambda: len(self.listeners) >= count)

    def wait_sent(self, count: int) -> list[Sent]:
        """Wait until the account has sent so many messages, and return them."""
        self.wait(lambda: len(self.sent) >= count)
        return list(self.sent)

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.sent]

    def _next_time(self) -> int:
        with self.lock:
            self._time += 1
            return self._time

    def _deliver(self, data: bytes) -> None:
        event = b"event:receive\ndata:" + data + b"\n\n"
        if not self.listeners:
            self.kept.append(event)
        for listener in self.listeners:
            listener.put_nowait(event)
        self.notify()

    def _end_listeners(self) -> None:
        for listener in self.listeners:
            listener.put_nowait(None)

    # -- requests

    def operation_of(self, request: Request) -> str:
        path = request.path.partition("?")[0]
        if path == "/api/v1/events":
            return "events"
        if path == "/api/v1/rpc":
            try:
                return str(json.loads(request.body)["method"])
            except (ValueError, KeyError, TypeError):
                return "rpc"
        return path

    async def respond(self, request: Request) -> Response:
        path, _, query = request.path.partition("?")
        host = request.headers.get("host", "").partition(":")[0]
        if host not in ("localhost", "127.0.0.1"):
            return Response(403, b"")
        if path == "/api/v1/check":
            return Response(200, b"")
        if path == "/api/v1/events":
            return await self._stream(dict(urllib.parse.parse_qsl(query)))
        if path != "/api/v1/rpc":
            return Response(404, b"")
        if not request.headers.get("content-type", "").startswith("application/json"):
            return Response(415, b"")
        return self._rpc(request)

    async def _stream(self, query: Mapping[str, str]) -> Response:
        if query.get("account") not in (None, self.number):
            return Response(400, b"")
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        for event in self.kept:
            queue.put_nowait(event)
        self.kept.clear()
        self.listeners.append(queue)
        self.notify()
        if self.delays_headers:
            # Older daemons send their headers with the first byte of the body.
            queue.put_nowait(await self._next(queue))
        return Response(stream=self._events(queue), content_type="text/event-stream")

    async def _next(self, queue: asyncio.Queue[bytes | None]) -> bytes | None:
        try:
            async with asyncio.timeout(self.keepalive_seconds):
                return await queue.get()
        except TimeoutError:
            return b":\n"

    async def _events(self, queue: asyncio.Queue[bytes | None]) -> AsyncGenerator[bytes, None]:
        try:
            while (event := await self._next(queue)) is not None:
                if not self.is_silent:
                    yield event
        finally:
            self.listeners.remove(queue)
            self.notify()

    def _rpc(self, request: Request) -> Response:
        answer: dict[str, Any] = {"jsonrpc": "2.0"}
        try:
            call = json.loads(request.body)
            answer["id"] = call["id"]
            answer["result"] = self._call(call["method"], call.get("params") or {})
        except RpcError as error:
            answer["error"] = error.body
        except ValueError:
            answer |= {"id": None, "error": {"code": -32700, "message": "no JSON", "data": None}}
        result = answer.get("result")
        if isinstance(result, AsyncGenerator):
            return Response(stream=result)
        self.notify()
        return Response(body=json.dumps(answer).encode())

    def _call(self, method: str, parameters: Mapping[str, Any]) -> Any:
        if method not in KNOWN_METHODS or (method == "listAccounts" and not self.lists_accounts):
            raise RpcError(-32601, "Method not implemented")
        unknown = set(parameters) - KNOWN_METHODS[method]
        if unknown:
            self.violations.append(f"{method} with {sorted(unknown)}")
        # These two need no account, but one that is named must exist.
        is_general = method in ("version", "listAccounts") and "account" not in parameters
        if parameters.get("account") != self.number and not is_general:
            raise RpcError(-32602, "Specified account does not exist")
        match method:
            case "version":
                return {"version": "0.13.19"}
            case "listAccounts":
                return [{"number": self.number}]
            case "getUserStatus":
                return [{"recipient": item, "number": item, "uuid": OWN_UUID, "isRegistered": True}
                        for item in parameters["recipient"]]  # fmt: skip
            case "getAttachment":
                return self._attachment(parameters)
        chat = self._chat(parameters)
        if method == "sendTyping":
            self.typing.append((chat, bool(parameters.get("stop"))))
            return {"timestamp": self._next_time(), "results": [success()]}
        return self._send(chat, parameters)

    def _chat(self, parameters: Mapping[str, Any]) -> str:
        if "groupId" in parameters:
            if parameters["groupId"] not in self.groups:
                raise RpcError(-1, "Invalid group id")
            return str(parameters["groupId"])
        (chat,) = parameters["recipient"]
        if chat in self.unregistered:
            raise failed(-1, "UNREGISTERED_FAILURE")
        return str(chat)

    def _send(self, chat: str, parameters: Mapping[str, Any]) -> Any:
        text, files = parameters.get("message", ""), parameters.get("attachments", [])
        if not text and not files:
            raise RpcError(-1, "No message")
        units = len(text.encode("utf-16-le", "surrogatepass")) // 2
        for style in parameters.get("textStyle", []):
            match = _STYLE.fullmatch(style)
            if match is None or int(match[1]) + int(match[2]) > units:
                raise RpcError(-1, f"Invalid style {style}")
        if len(text.encode("utf-8", "surrogatepass")) > 2000:
            self.violations.append("a text of more than 2,000 bytes")
        sent = Sent(
            chat, text, self._next_time(), tuple(parameters.get("textStyle", ())),
            parameters.get("quoteTimestamp"), _file(files[0]) if files else None,
            parameters.get("editTimestamp"),
        )  # fmt: skip
        with self.changed:
            self.sent.append(sent)
        return {"timestamp": sent.timestamp, "results": [success()]}

    def _attachment(self, parameters: Mapping[str, Any]) -> Any:
        if parameters["id"] not in self.files:
            raise RpcError(-1, "Could not find attachment with ID: x")
        content = self.files[parameters["id"]]
        if content is None:
            return _endless()
        return {"data": base64.b64encode(content).decode()}


def success() -> dict[str, Any]:
    """Return the outcome of a message for one person who got it."""
    address = {"uuid": ANA_UUID, "number": ANA_NUMBER}
    return {"recipientAddress": address, "type": "SUCCESS"}


def failed(code: int, *types: str, **fields: Any) -> RpcError:
    """Return the error of a message, with its outcome for each person."""
    results = [{**success(), "type": kind, **fields} for kind in types]
    return RpcError(code, "Failed to send message", {"response": {"timestamp": 1,
                                                                  "results": results}})  # fmt: skip


def error(code: int, *types: str, times: int | None = 1, **fields: Any) -> Fault:
    """Return a fault that is an error of the daemon."""
    body = {"jsonrpc": "2.0", "error": failed(code, *types, **fields).body, "id": "1"}
    return Fault(200, json.dumps(body).encode(), times=times)


def _file(uri: str) -> tuple[str, bytes]:
    head, _, data = uri.partition(";base64,")
    return head.removeprefix("data:"), base64.b64decode(data)


async def _endless() -> AsyncGenerator[bytes, None]:
    yield b'{"jsonrpc":"2.0","result":{"data":"'
    while True:
        yield b"eHh4" * 16384
