"""A scripted HTTP server on loopback, for the fakes of chat platforms.

It runs in a thread with its own event loop, on real sockets, so that faults look as in production:
a response may be an error, be cut, come late or never, or fail after the request was carried out.

    server.spoil("sendMessage", Fault(status=502, body=b"<html>"), Fault(takes=True, end="cut"))

Each fault spoils one request of that operation; a fault with `times=None` spoils all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
import urllib.parse
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any, Literal, NamedTuple, Self, TypeVar

from tests.servers.no_delay import send_at_once
from tests.servers.ports import free_port
from tests.servers.server_socket import ServerSocket, shake_hands

T = TypeVar("T")

MAX_BODY = 64 * 1024 * 1024
_LOOK_SECONDS = 0.02  # how often a condition is looked at without a notification
JSON = "application/json"

# How a response ends: complete, after half of its body, before its first byte, or never.
End = Literal["well", "half", "cut", "never"]


class Fault(NamedTuple):
    """A fault of one request. With `takes` the request is carried out first.

    Without a status the response is the true one, spoiled only by its end or its `delay`.
    """

    status: int | None = None
    body: bytes = b""
    content_type: str = JSON
    headers: Mapping[str, str] = {}
    takes: bool = False
    end: End = "well"
    delay: float = 0.0
    times: int | None = 1


class Request(NamedTuple):
    """A request as it arrived; `operation` is what the server made of its path."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    operation: str = ""

    def fields(self) -> dict[str, Any]:
        """Return the fields of the body or the query; a file is a pair of its name and bytes."""
        query = self.path.partition("?")[2]
        fields: dict[str, Any] = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        kind = self.headers.get("content-type", "")
        if kind.startswith(JSON):
            fields.update(json.loads(self.body or b"{}"))
        elif kind.startswith("application/x-www-form-urlencoded"):
            fields.update(urllib.parse.parse_qsl(self.body.decode(), keep_blank_values=True))
        elif kind.startswith("multipart/form-data"):
            head = f"Content-Type: {kind}\r\n\r\n".encode()
            for part in BytesParser(policy=HTTP).parsebytes(head + self.body).iter_parts():
                name = part.get_param("name", header="content-disposition")
                content = part.get_payload(decode=True)
                filename = part.get_filename()
                assert isinstance(content, bytes)
                fields[str(name)] = content.decode() if filename is None else (filename, content)
        return fields


class Response(NamedTuple):
    """The response to a request; `stream` yields the body in pieces, without a length."""

    status: int = 200
    body: bytes = b""
    content_type: str = JSON
    headers: Mapping[str, str] = {}
    stream: AsyncGenerator[bytes, None] | None = None


class ScriptedServer(ABC):
    """A server in a thread of its own; subclasses know the platform."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.port = 0
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self._faults: dict[str, list[Fault]] = defaultdict(list)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._listener: socket.socket | None = None
        self._connections: dict[asyncio.Task[None], socket.socket] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # -- the script

    def spoil(self, operation: str, *faults: Fault) -> None:
        """Spoil the next requests of an operation, one with each fault."""
        with self.lock:
            self._faults[operation] += faults

    def mend(self) -> None:
        """Forget all faults."""
        with self.lock:
            self._faults.clear()

    def open(self) -> None:
        """Accept connections, on the same port as before."""
        self.run(self._listen())

    def refuse(self) -> None:
        """Close every connection and accept no new one."""
        self.run(self._shut())

    def wait(
        self,
        condition: Callable[[], bool],
        seconds: float = 60,
        *,
        describe: Callable[[], str] = str,
    ) -> None:
        """Wait until a condition holds; one on the state of a client is notified by nobody.

        `describe` says what is missing, if it does not come true.
        """
        deadline = time.monotonic() + seconds
        with self.changed:
            while not condition():
                assert time.monotonic() < deadline, f"the server waited in vain {describe()}"
                self.changed.wait(_LOOK_SECONDS)

    def notify(self) -> None:
        """Wake everything that waits for a change of the state."""
        with self.changed:
            self.changed.notify_all()

    def count(self, operation: str) -> int:
        """Return how many requests of an operation arrived."""
        with self.lock:
            return sum(request.operation == operation for request in self.requests)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop of the server, and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    # -- the platform

    @abstractmethod
    def operation_of(self, request: Request) -> str:
        """Return the operation that a request calls."""

    @abstractmethod
    async def respond(self, request: Request) -> Response:
        """Carry a request out; runs in the loop of the server."""

    async def serve_socket(self, request: Request, socket: ServerSocket) -> None:
        """Serve a WebSocket until it is closed; a platform without sockets refuses it."""
        await socket.close(1008)

    # -- connections

    # Not asyncio.start_server: if it is closed a moment after a connection came in, it loses the
    # socket of that connection (its transport fails half made), and Python warns about it later,
    # in whichever test runs then.

    async def _listen(self) -> None:
        # No other server may be given the port while this one refuses connections.
        self._listener = socket.create_server(("127.0.0.1", self.port or free_port()))
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        asyncio.get_running_loop().add_reader(self._listener, self._accept, self._listener)

    async def _shut(self) -> None:
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        connections = dict(self._connections)
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        await asyncio.sleep(0)  # aborted transports let go of their sockets in the next round
        for connected in connections.values():
            connected.close()  # one that was cancelled before it began has no transport

    async def _stop(self) -> None:
        await self._shut()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0)

    def _accept(self, listener: socket.socket) -> None:
        try:
            connected, _ = listener.accept()
        except OSError:
            return  # the client has gone already
        connected.setblocking(False)
        send_at_once(connected)
        task = asyncio.get_running_loop().create_task(self._connect(connected))
        self._connections[task] = connected
        task.add_done_callback(lambda done: self._connections.pop(done, None))

    async def _connect(self, connected: socket.socket) -> None:
        try:
            reader, writer = await asyncio.open_connection(sock=connected, limit=2**20)
        except (OSError, asyncio.CancelledError):
            connected.close()
            return
        try:
            while await self._exchange(reader, writer):
                pass
        except (OSError, EOFError, asyncio.CancelledError):
            pass  # the client has gone, or the server stops
        finally:
            writer.transport.abort()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; return whether the connection stays open."""
        request = await _read(reader)
        if request is None:
            return False
        request = request._replace(operation=self.operation_of(request))
        with self.changed:
            self.requests.append(request)
            fault = self._take_fault(request.operation)
            self.changed.notify_all()
        if fault is None and "sec-websocket-key" in request.headers:
            await self._serve_socket(request, reader, writer)
            return False
        if fault is None:
            response = await self._answer(request, reader)
        elif fault.takes or (fault.status is None and fault.end not in ("cut", "never")):
            response = await self._answer(request, reader)
            if fault.status is not None and response is not None:
                response = _spoiled(fault)
        else:
            response = _spoiled(fault)
        if response is None:
            return False
        if fault is not None:
            await asyncio.sleep(fault.delay)
        return await _write(writer, reader, response, fault.end if fault is not None else "well")

    async def _serve_socket(
        self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await shake_hands(writer, request.headers["sec-websocket-key"])
        await self.serve_socket(request, ServerSocket(reader, writer))

    def _take_fault(self, operation: str) -> Fault | None:
        waiting = self._faults[operation]
        if not waiting:
            return None
        fault = waiting[0]
        if fault.times is not None:
            waiting[0] = fault._replace(times=fault.times - 1)
            if fault.times <= 1:
                waiting.pop(0)
        return fault

    async def _answer(self, request: Request, reader: asyncio.StreamReader) -> Response | None:
        """Return the response, or None if the client has gone before it was ready."""
        answer = asyncio.ensure_future(self.respond(request))
        done, _ = await asyncio.wait([answer], timeout=0)
        if not done:
            gone = asyncio.ensure_future(reader.read(1))
            try:
                await asyncio.wait([answer, gone], return_when=asyncio.FIRST_COMPLETED)
                if not answer.done():
                    answer.cancel()
                    await asyncio.gather(answer, return_exceptions=True)
                    return None
            finally:
                gone.cancel()
                await asyncio.gather(gone, return_exceptions=True)
                if not answer.done():
                    answer.cancel()
        return answer.result()


def _spoiled(fault: Fault) -> Response:
    return Response(fault.status or 200, fault.body, fault.content_type, fault.headers)


async def _read(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    method, path, _ = first.split(" ", 2)
    pairs = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    if headers.get("transfer-encoding") == "chunked":
        body = b""
        while size := int((await reader.readline()).strip(), 16):
            body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
    else:
        length = int(headers.get("content-length", 0))
        assert length <= MAX_BODY
        body = await reader.readexactly(length)
    return Request(method, path, headers, body)


async def _write(
    writer: asyncio.StreamWriter, reader: asyncio.StreamReader, response: Response, end: End
) -> bool:
    if end == "cut":
        return False
    if end == "never":
        await reader.read()  # until the client gives up
        return False
    headers = {"Content-Type": response.content_type, **response.headers}
    if response.stream is None:
        headers["Content-Length"] = str(len(response.body))
    lines = [f"HTTP/1.1 {response.status} OK", *(f"{name}: {headers[name]}" for name in headers)]
    writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
    if response.stream is not None:
        try:
            async for piece in response.stream:
                writer.write(piece)
                await writer.drain()
        finally:
            await response.stream.aclose()  # also if the client has gone
        return False
    if end == "half":
        writer.write(response.body[: len(response.body) // 2])
        with contextlib.suppress(OSError):
            await writer.drain()
        writer.close()
        return False
    writer.write(response.body)
    await writer.drain()
    return True
