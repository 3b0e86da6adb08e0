"""HTTP/1.1 connections for the HTTP library, at less than half of its processor time.

The library's own are made for every event loop and protocol. For each request its pool looks at all
idle connections with a system call, and each read and write enters and leaves several contexts: a
gateway that answers a thousand chats at once spent most of its time there (decision 0054). Here a
connection is one `asyncio.Protocol` around h11. Proxies and WebSockets are left to the library.
"""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
import time
from collections import Counter, deque
from collections.abc import AsyncIterator
from typing import Any, Final

import h11
import httpx2

_IDLE_SECONDS: Final = 30.0
# Bytes that wait to be read, or written, before the other side has to wait.
_BUFFER_BYTES: Final = 262_144
_HEAD_BYTES: Final = 102_400  # the longest head of a response
_HAPPY_EYEBALLS_SECONDS: Final = 0.25
Origin = tuple[str, str, int]
_Address = tuple[Any, Any, int, str, Any]  # as getaddrinfo returns it


class HttpTransport(httpx2.AsyncBaseTransport):
    """Sends each request on a connection of its own, and keeps up to `size` idle connections.

    The connection that was used last is used first. What fails before the first byte of a request
    is sent raises `ConnectError` or `ConnectTimeout`, and everything later another `HTTPError`.
    """

    def __init__(self, tls: ssl.SSLContext | None, size: int) -> None:
        """`tls` is None for a server without TLS."""
        if tls is not None:
            tls.set_alpn_protocols(["http/1.1"])
        self._tls = tls
        self._size = size
        self._idle: deque[_Connection] = deque()  # the longest idle first

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request and return the response, its body yet to be read."""
        limits = request.extensions.get("timeout", {})
        origin = _origin(request.url)
        connection = self._take_idle(origin) or await self._connect(
            request, origin, limits.get("connect")
        )
        try:
            await connection.send(request, limits.get("write"))
            event = await connection.receive_head(limits.get("read"))
        except BaseException:
            connection.abort()
            raise
        return httpx2.Response(
            event.status_code,
            headers=event.headers.raw_items(),
            stream=_Body(self, connection, limits.get("read")),
            extensions={"reason_phrase": bytes(event.reason)},
        )

    def give_back(self, connection: _Connection) -> None:
        """Keep a connection whose response is read, if there is room for it."""
        if not connection.end_cycle():
            connection.abort()
            return
        self._idle.append(connection)
        if len(self._idle) > self._size or self._idle[0].has_expired():
            self._idle.popleft().abort()

    async def aclose(self) -> None:
        """Close the idle connections now, and the others when they are given back."""
        self._size = 0
        while self._idle:
            self._idle.pop().abort()

    def _take_idle(self, origin: Origin) -> _Connection | None:
        for connection in reversed(self._idle):
            if connection.origin == origin:
                self._idle.remove(connection)
                if connection.is_usable():
                    return connection
                connection.abort()
                return self._take_idle(origin)
        return None

    async def _connect(
        self, request: httpx2.Request, origin: Origin, seconds: float | None
    ) -> _Connection:
        scheme, host, port = origin
        if scheme == "https" and self._tls is None:
            raise httpx2.UnsupportedProtocol("This client has no TLS.", request=request)
        tls = self._tls if scheme == "https" else None
        loop = asyncio.get_running_loop()
        connection = _Connection(origin)
        try:
            async with asyncio.timeout(seconds):
                connected = await _connect_socket(host, port)
                await loop.create_connection(
                    lambda: connection,
                    sock=connected,
                    ssl=tls,
                    server_hostname=host if tls else None,
                )
        except TimeoutError as problem:
            raise httpx2.ConnectTimeout(str(problem), request=request) from problem
        except (OSError, UnicodeError) as problem:  # UnicodeError: a name that no server can have
            raise httpx2.ConnectError(str(problem), request=request) from problem
        return connection


class _Connection(asyncio.Protocol):
    """One connection. What comes in waits in `_received` until the reader takes it."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES)
        self._transport: asyncio.Transport | None = None
        self._received: deque[bytes] = deque()
        self._received_bytes = 0
        self._lost: Exception | None = None
        self._is_ended = False  # nothing more will come
        self._has_news = asyncio.Event()
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._idle_since = 0.0

    # -- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.set_write_buffer_limits(_BUFFER_BYTES)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received.append(data)
        self._received_bytes += len(data)
        if self._received_bytes > _BUFFER_BYTES and self._transport is not None:
            self._transport.pause_reading()
        self._has_news.set()

    def eof_received(self) -> None:
        self._is_ended = True
        self._has_news.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_ended = True
        self._lost = exc
        self._has_news.set()
        self._may_write.set()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    # -- called by the transport of the client

    async def send(self, request: httpx2.Request, seconds: float | None) -> None:
        """Send a request, head and small body in one piece.

        If the server ends the connection meanwhile, it may have answered: nothing is raised here.
        """
        head = h11.Request(
            method=request.method, target=request.url.raw_path, headers=request.headers.raw
        )
        pieces, size = [self._encode(head)], 0
        assert isinstance(request.stream, httpx2.AsyncByteStream)
        async for piece in request.stream:
            pieces.append(self._encode(h11.Data(data=piece)))
            size += len(piece)
            if size > _BUFFER_BYTES:
                await self._write(b"".join(pieces), request, seconds)
                pieces, size = [], 0
        pieces.append(self._encode(h11.EndOfMessage()))
        await self._write(b"".join(pieces), request, seconds)

    async def receive_head(self, seconds: float | None) -> h11.Response:
        """Return the head of the response; raise an `HTTPError` if there is none."""
        while True:
            event = await self._next_event(seconds)
            if isinstance(event, h11.Response):
                return event

    async def receive_body(self, seconds: float | None) -> AsyncIterator[bytes]:
        """Yield the body of the response."""
        while isinstance(event := await self._next_event(seconds), h11.Data):
            yield bytes(event.data)

    def end_cycle(self) -> bool:
        """Prepare the next request; return False if there can be none on this connection."""
        http = self._http
        if http.our_state is not h11.DONE or http.their_state is not h11.DONE:
            return False
        if http.trailing_data != (b"", False) or self._received or self._is_ended:
            return False  # what came after the response is the response to nothing
        http.start_next_cycle()
        self._idle_since = time.monotonic()
        return True

    def has_expired(self) -> bool:
        """Return whether the connection has been idle for too long."""
        return time.monotonic() - self._idle_since > _IDLE_SECONDS

    def is_usable(self) -> bool:
        """Return whether a request can be sent: the server has not ended it, nor sent anything."""
        return not (
            self._is_ended or self._received or self.has_expired() or self._has_unread_data()
        )

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def _has_unread_data(self) -> bool:
        """Return whether data or the end of the connection have come that the loop has not read."""
        socket = None if self._transport is None else self._transport.get_extra_info("socket")
        if socket is None or not hasattr(select, "poll"):  # Windows
            return False
        poll = select.poll()
        poll.register(socket.fileno(), select.POLLIN)
        return bool(poll.poll(0))

    def _encode(self, event: Any) -> bytes:
        try:
            return self._http.send(event) or b""
        except h11.LocalProtocolError as problem:
            raise httpx2.LocalProtocolError(str(problem)) from problem

    async def _write(self, data: bytes, request: httpx2.Request, seconds: float | None) -> None:
        if self._is_ended or self._transport is None:
            return
        self._transport.write(data)
        if not self._may_write.is_set():
            try:
                async with asyncio.timeout(seconds):
                    await self._may_write.wait()
            except TimeoutError as problem:
                raise httpx2.WriteTimeout(str(problem), request=request) from problem

    async def _next_event(self, seconds: float | None) -> Any:
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                await self._feed(seconds)
        except h11.RemoteProtocolError as problem:
            raise httpx2.RemoteProtocolError(str(problem)) from problem
        return event

    async def _feed(self, seconds: float | None) -> None:
        """Give the parser what has come, or wait for it."""
        if not self._received and not self._is_ended:
            self._has_news.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._has_news.wait()
            except TimeoutError as problem:
                raise httpx2.ReadTimeout(str(problem)) from problem
        if self._received:
            self._http.receive_data(b"".join(self._received))
            self._received.clear()
            self._received_bytes = 0
            if not self._is_ended and self._transport is not None:
                self._transport.resume_reading()
        elif self._lost is not None:
            raise httpx2.ReadError(str(self._lost)) from self._lost
        elif self._http.their_state is h11.SEND_RESPONSE:
            raise httpx2.RemoteProtocolError("The server disconnected without a response.")
        else:
            self._http.receive_data(b"")


class _Body(httpx2.AsyncByteStream):
    """The body of a response; its connection is free, or closed, when the body is."""

    def __init__(
        self, transport: HttpTransport, connection: _Connection, seconds: float | None
    ) -> None:
        self._transport = transport
        self._connection: _Connection | None = connection
        self._seconds = seconds

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._connection is not None:
            async for piece in self._connection.receive_body(self._seconds):
                yield piece

    async def aclose(self) -> None:
        """Give the connection back, once."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._transport.give_back(connection)


async def _connect_socket(host: str, port: int) -> socket.socket:
    """Return a socket that is connected to the first address of a host that accepts.

    An address that has not answered after a moment is tried beside the next one.
    `loop.create_connection` does the same, but loses an open socket if it is cancelled when one of
    them has just been connected.
    """
    addresses = iter(await _find_addresses(host, port))
    attempts: list[asyncio.Task[socket.socket]] = []
    waiting: set[asyncio.Task[socket.socket]] = set()
    try:
        while (address := next(addresses, None)) is not None or waiting:
            if address is not None:
                attempts.append(asyncio.create_task(_connect_to(address)))
                waiting.add(attempts[-1])
            done, waiting = await asyncio.wait(
                waiting,
                timeout=None if address is None else _HAPPY_EYEBALLS_SECONDS,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for attempt in done:
                if attempt.exception() is None:
                    attempts.remove(attempt)
                    return attempt.result()
        return attempts[0].result()  # raises: no address accepts
    finally:
        for attempt in attempts:
            attempt.cancel()
            attempt.add_done_callback(_close_socket)


async def _find_addresses(host: str, port: int) -> list[_Address]:
    """Return the addresses of a host, the first of each family before the second of any."""
    try:
        numeric = socket.AI_NUMERICHOST  # needs no thread
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=numeric)
    except socket.gaierror:
        addresses = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )
    counts: Counter[int] = Counter()
    ranks = []  # the position of each address within its family
    for address in addresses:
        ranks.append(counts[address[0]])
        counts[address[0]] += 1
    return [addresses[n] for n in sorted(range(len(addresses)), key=ranks.__getitem__)]


async def _connect_to(address: _Address) -> socket.socket:
    family, kind, protocol, _, location = address
    connecting = socket.socket(family, kind, protocol)
    try:
        connecting.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connecting, location)
    except BaseException:
        connecting.close()
        raise
    return connecting


def _close_socket(attempt: asyncio.Task[socket.socket]) -> None:
    """Close what an attempt connected that nobody waits for."""
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().close()


def _origin(url: httpx2.URL) -> Origin:
    return url.scheme, url.host, url.port or (443 if url.scheme == "https" else 80)
