"""A proxy on loopback in front of an HTTP server, which makes the faults that a test asks for.

    async with HttpProxy(server.base_url) as proxy:
        proxy.spoil("/send/", Fault(status=502, body=b"<html>"), times=1)

It runs in the event loop of the test, keeps what passed through it in `exchanges`, and has the same
port when it is closed and opened again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Self
from urllib.parse import parse_qs, unquote, urlsplit

import httpx2

# How a spoiled exchange goes on: an answer of the proxy (the server gets nothing), the connection
# is cut before or after the server got the request, half of the answer, no answer at all, or the
# answer of the server with another body.
FaultKind = Literal["answer", "answer_after", "cut_before", "cut_after", "half", "hang", "change"]
_HOP_BY_HOP = frozenset({"connection", "transfer-encoding", "content-length", "host"})


class Fault(NamedTuple):
    """What happens to a request instead of being passed on."""

    kind: FaultKind = "answer"
    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    change: Callable[[bytes], bytes] = bytes


class Request(NamedTuple):
    """A request as the proxy received it."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return unquote(urlsplit(self.target).path)

    @property
    def query(self) -> dict[str, str]:
        return {name: values[-1] for name, values in parse_qs(urlsplit(self.target).query).items()}


class Exchange(NamedTuple):
    """A request and the answer that was passed on; None if there was none."""

    request: Request
    status: int | None
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class HttpProxy:
    """Passes requests on, except those that a rule spoils."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._client = httpx2.AsyncClient(timeout=120, follow_redirects=False)
        self._server: asyncio.Server | None = None
        self._port = 0
        self._connections: set[asyncio.Task[None]] = set()
        self._rules: list[list[Any]] = []
        self.exchanges: list[Exchange] = []
        self.requests: list[Request] = []

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def spoil(
        self, pattern: str, fault: Fault, *, times: int | None = None, method: str | None = None
    ) -> None:
        """Let requests whose method and path fit the pattern fail, so many times or always."""
        self._rules.append([re.compile(pattern), method, fault, times])

    @property
    def has_struck(self) -> bool:
        """Return whether every rule has spoiled as many requests as it was to."""
        return all(rule[3] == 0 for rule in self._rules)

    def mend(self) -> None:
        """Pass everything on again."""
        self._rules.clear()

    def sent(self, pattern: str, method: str | None = None) -> list[Request]:
        """Return the requests so far whose path fits the pattern."""
        return [
            request
            for request in self.requests
            if re.search(pattern, request.path) and method in (None, request.method)
        ]

    async def open(self) -> None:
        """Accept connections, on the same port as before."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    def refuse(self) -> None:
        """Refuse connections, and cut those that are open, until it is opened again."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in tuple(self._connections):
            task.cancel()

    async def close(self) -> None:
        """Refuse connections, and wait until all are cut."""
        self.refuse()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
        await self._client.aclose()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while (request := await _read_request(reader)) is not None:
                self.requests.append(request)
                if not await self._answer(request, writer):
                    break
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the other side, or the test, has cut the connection
        finally:
            self._connections.discard(task)
            with contextlib.suppress(OSError, RuntimeError):
                writer.transport.abort()

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        """Answer a request; return whether the connection goes on."""
        fault = self._take_fault(request)
        if fault is not None and fault.kind == "cut_before":
            return self._note(request, None, b"")
        if fault is not None and fault.kind == "answer":
            await _write(writer, fault.status, fault.body, fault.content_type, fault.headers)
            return self._note(request, fault.status, fault.body)
        try:
            response = await self._pass_on(request)
        except httpx2.HTTPError:
            return self._note(request, None, b"") and False
        status, body = response.status_code, response.content
        content_type = response.headers.get("content-type", "application/json")
        headers = tuple(
            (name, value)
            for name, value in response.headers.items()
            if name in ("retry-after", "content-disposition")
        )
        match fault:
            case Fault("cut_after"):
                self._note(request, None, b"")
                return False
            case Fault("hang"):
                self._note(request, None, b"")
                await asyncio.Event().wait()
            case Fault("half"):
                await _write(writer, status, body, content_type, headers, length=len(body) // 2)
                self._note(request, None, b"")
                return False
            case Fault("answer_after"):
                status, body, content_type = fault.status, fault.body, fault.content_type
            case Fault("change"):
                body = fault.change(body)
        self._note(request, status, body)
        await _write(writer, status, body, content_type, headers)
        return True

    def _take_fault(self, request: Request) -> Fault | None:
        for rule in self._rules:
            pattern, method, fault, times = rule
            if pattern.search(request.path) and method in (None, request.method) and times != 0:
                rule[3] = None if times is None else times - 1
                return fault  # type: ignore[no-any-return]
        return None

    async def _pass_on(self, request: Request) -> httpx2.Response:
        headers = {
            name: value for name, value in request.headers.items() if name not in _HOP_BY_HOP
        }
        return await self._client.request(
            request.method, self._upstream + request.target, content=request.body, headers=headers
        )

    def _note(self, request: Request, status: int | None, body: bytes) -> bool:
        self.exchanges.append(Exchange(request, status, body))
        return status is not None


async def _read_request(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(":") for line in lines)
    }
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, target, headers, body)


async def _write(
    writer: asyncio.StreamWriter,
    status: int,
    body: bytes,
    content_type: str,
    headers: tuple[tuple[str, str], ...],
    *,
    length: int | None = None,
) -> None:
    lines = [
        f"HTTP/1.1 {status} X",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in headers),
    ]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body[:length])
    await writer.drain()
