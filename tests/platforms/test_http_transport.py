"""HTTP connections of the adapters: kept, never used when the server has ended or misused them."""

from __future__ import annotations

import asyncio
import gc
import itertools
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tertulia.platforms.http_library import load_library, new_client
from tertulia.platforms.http_transport import HttpTransport
from tests.servers.mail import write_certificate

Script = Callable[["ScriptedConnection"], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
MEGABYTE = bytes(range(256)) * 4096
PATIENCE = 60.0
KEPT = 4


class ScriptedConnection:
    """The server's side of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self.bodies: list[bytes] = []

    async def read_request(self) -> bytes:
        """Return the head of the next request, its body read; empty at the end."""
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return b""
        lines = head.decode("latin-1").lower().split("\r\n")
        sizes = [int(line.partition(":")[2]) for line in lines if line.startswith("content-length")]
        self.bodies.append(await self._reader.readexactly(sum(sizes)))
        return head

    async def answer(self, data: bytes = OK) -> None:
        self.writer.write(data)
        await self.writer.drain()


class ScriptedServer:
    """A server that runs a script for each connection."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.connections: list[ScriptedConnection] = []
        self.ended: list[asyncio.Event] = []
        self.closed = asyncio.Semaphore(0)
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection, ended = ScriptedConnection(reader, writer), asyncio.Event()
        self.connections.append(connection)
        self.ended.append(ended)
        try:
            await self._script(connection)
        except ConnectionError:
            pass
        finally:
            writer.close()
            ended.set()
            self.closed.release()


@asynccontextmanager
async def scripted_server(
    script: Script, tls_folder: Path | None = None
) -> AsyncIterator[tuple[ScriptedServer, httpx2.AsyncClient]]:
    """Serve, with TLS if there is a folder for its certificate; yield the server and a client."""
    server = ScriptedServer(script)
    tls = client_tls = None
    if tls_folder is not None:
        write_certificate(tls_folder)
        certificate = tls_folder / "certificate.pem"
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(certificate, tls_folder / "key.pem")
        client_tls = ssl.create_default_context(cafile=certificate)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls)
    server.port = listener.sockets[0].getsockname()[1]
    scheme = "http" if tls is None else "https"
    transport = HttpTransport(client_tls, KEPT)
    base = f"{scheme}://127.0.0.1:{server.port}"
    try:
        async with (
            asyncio.timeout(PATIENCE),
            httpx2.AsyncClient(transport=transport, base_url=base, timeout=PATIENCE) as client,
        ):
            yield server, client
    finally:
        listener.close()
        for connection in server.connections:
            # Python 3.11.2 raises AttributeError if a closed connection with TLS is aborted.
            if not connection.writer.is_closing():
                connection.writer.transport.abort()


def run(
    script: Script,
    act: Callable[[ScriptedServer, httpx2.AsyncClient], Awaitable[Any]],
    tls_folder: Path | None = None,
) -> Any:
    async def main() -> Any:
        async with scripted_server(script, tls_folder) as (server, client):
            return await act(server, client)

    return asyncio.run(main())


async def answer_all(connection: ScriptedConnection) -> None:
    while await connection.read_request():
        await connection.answer()


def test_connection_is_kept() -> None:
    async def act(server: ScriptedServer, client: httpx2.AsyncClient) -> None:
        for _ in range(3):
            assert (await client.post("/", json={"a": 1})).text == "ok"
        assert len(server.connections) == 1
        assert server.connections[0].bodies == [b'{"a":1}'] * 3

    run(answer_all, act)


def test_requests_at_once_have_their_own_connections_and_few_are_kept() -> None:
    async def act(server: ScriptedServer, client: httpx2.AsyncClient) -> None:
        answers = await asyncio.gather(*(client.post("/", json=n) for n in range(10)))
        assert [answer.text for answer in answers] == ["ok"] * 10
        opened = len(server.connections)
        for _ in range(3):
            await client.get("/")
        assert len(server.connections) == opened
        for _ in range(opened - KEPT):
            await server.closed.acquire()
        assert server.closed.locked()  # no others

    run(answer_all, act)


def test_connection_that_the_server_ended_is_not_used_again() -> None:
    async def answer_once(connection: ScriptedConnection) -> None:
        await connection.read_request()
        await connection.answer()

    async def act(server: ScriptedServer, client: httpx2.AsyncClient) -> None:
        for number in range(5):
            assert (await client.post("/", json=number)).text == "ok"
            await server.ended[-1].wait()
        assert len(server.connections) == 5

    run(answer_once, act)


@pytest.mark.parametrize("is_late", [False, True])
def test_response_to_nothing_is_not_taken_for_the_next_one(is_late: bool) -> None:
    stray = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstray"
    is_read, is_sent = asyncio.Event(), asyncio.Event()

    async def answer_twice(connection: ScriptedConnection) -> None:
        while await connection.read_request():
            await connection.answer(OK if is_late else OK + stray)
            if is_late:
                await is_read.wait()
                await connection.answer(stray)
            is_sent.set()

    async def act(server: ScriptedServer, client: httpx2.AsyncClient) -> None:
        for _ in range(3):
            assert (await client.get("/")).text == "ok"
            is_read.set()
            await is_sent.wait()
            is_read.clear()
            is_sent.clear()
        assert len(server.connections) == 3

    run(answer_twice, act)


def test_connection_of_a_response_that_is_not_read_is_closed() -> None:
    async def act(server: ScriptedServer, client: httpx2.AsyncClient) -> None:
        async with client.stream("GET", "/"):
            pass
        await server.ended[0].wait()
        assert (await client.get("/")).text == "ok"
        assert len(server.connections) == 2

    run(answer_all, act)


def test_server_that_closes_after_its_response_is_understood() -> None:
    async def act(server: ScriptedServer, client: httpx2.AsyncClient) -> None:
        for _ in range(2):
            assert (await client.get("/")).text == "until the end"
        assert len(server.connections) == 2

    async def answer_without_length(connection: ScriptedConnection) -> None:
        await connection.read_request()
        await connection.answer(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end")

    run(answer_without_length, act)


def test_chunks_and_heads_that_only_inform_are_understood() -> None:
    data = b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

    async def answer_in_chunks(connection: ScriptedConnection) -> None:
        while await connection.read_request():
            for piece in (data, b"3\r\nabc", b"\r\n2\r\nde\r\n", b"0\r\n\r\n"):
                await connection.answer(piece)
                await asyncio.sleep(0.01)

    async def act(server: ScriptedServer, client: httpx2.AsyncClient) -> None:
        for _ in range(2):
            assert (await client.get("/")).text == "abcde"
        assert len(server.connections) == 1

    run(answer_in_chunks, act)


@pytest.mark.parametrize("is_secure", [False, True])
def test_large_bodies_arrive_whole(is_secure: bool, tmp_path: Path) -> None:
    download = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (4 * len(MEGABYTE))

    async def answer_much(connection: ScriptedConnection) -> None:
        while await connection.read_request():
            await connection.answer(download + 4 * MEGABYTE)

    async def act(server: ScriptedServer, client: httpx2.AsyncClient) -> None:
        for _ in range(2):
            body = b""
            async with client.stream("POST", "/", content=3 * MEGABYTE) as answer:
                async for piece in answer.aiter_raw():
                    body += piece
                    await asyncio.sleep(0)
            assert body == 4 * MEGABYTE
        assert server.connections[0].bodies == [3 * MEGABYTE] * 2
        assert len(server.connections) == 1

    run(answer_much, act, tmp_path if is_secure else None)


def test_certificate_of_a_stranger_is_refused(tmp_path: Path) -> None:
    async def act(server: ScriptedServer, client: httpx2.AsyncClient) -> None:
        library = load_library("Telegram")
        async with new_client(library, "https://127.0.0.1") as stranger:
            with pytest.raises(httpx2.ConnectError):
                await stranger.get(f"https://127.0.0.1:{server.port}")

    run(answer_all, act, tmp_path)


async def _no_answer(connection: ScriptedConnection) -> None:
    await connection.read_request()


async def _half_a_head(connection: ScriptedConnection) -> None:
    await connection.read_request()
    await connection.answer(b"HTTP/1.1 200 OK\r\nContent-Le")


async def _half_a_body(connection: ScriptedConnection) -> None:
    await connection.read_request()
    await connection.answer(OK[:-1])


async def _reset(connection: ScriptedConnection) -> None:
    await connection.read_request()
    connection.writer.transport.abort()


async def _no_http(connection: ScriptedConnection) -> None:
    await connection.read_request()
    await connection.answer(b"+OK POP3 ready\r\n\r\n")


async def _silence(connection: ScriptedConnection) -> None:
    await connection.read_request()
    await connection.read_request()


@pytest.mark.parametrize(
    ("script", "errors"),
    [
        (_no_answer, httpx2.RemoteProtocolError),
        (_half_a_head, httpx2.RemoteProtocolError),
        (_half_a_body, httpx2.RemoteProtocolError),
        (_reset, (httpx2.ReadError, httpx2.RemoteProtocolError)),
        (_no_http, httpx2.RemoteProtocolError),
        (_silence, httpx2.ReadTimeout),
    ],
)
def test_failure_after_the_request_is_no_failure_to_connect(script: Script, errors: Any) -> None:
    """An adapter sends again what could not be connected, and nothing else."""

    async def act(server: ScriptedServer, client: httpx2.AsyncClient) -> None:
        seconds = 0.3 if script is _silence else PATIENCE
        with pytest.raises(errors) as caught:
            await client.post("/", json={}, timeout=httpx2.Timeout(PATIENCE, read=seconds))
        assert not isinstance(caught.value, httpx2.ConnectError | httpx2.ConnectTimeout)

    run(script, act)


def test_failure_to_connect_is_told_apart() -> None:
    async def act(server: ScriptedServer, client: httpx2.AsyncClient) -> None:
        with pytest.raises(httpx2.ConnectError):
            await client.post("http://127.0.0.1:1/", json={})

    run(answer_all, act)


def test_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    heads = []

    async def answer_for_others(connection: ScriptedConnection) -> None:
        while head := await connection.read_request():
            heads.append(head)
            await connection.answer()

    async def act(server: ScriptedServer, client: httpx2.AsyncClient) -> None:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{server.port}")
        async with new_client(load_library("Telegram"), "http://chat.example") as proxied:
            assert (await proxied.get("http://chat.example/bot")).text == "ok"

    run(answer_for_others, act)
    assert heads[0].startswith(b"GET http://chat.example/bot HTTP/1.1\r\n")


@pytest.mark.parametrize("is_secure", [False, True])
def test_request_cancelled_at_any_step_leaves_no_open_socket(
    is_secure: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancelled after 0, 1, 2, … rounds of the event loop, until one is over before that."""
    leaks: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", leaks.append)  # warnings are errors

    async def is_cancelled_after(rounds: int, client: httpx2.AsyncClient) -> bool:
        request = asyncio.create_task(client.post("/", json={}, headers={"Connection": "close"}))
        for _ in range(rounds):
            await asyncio.sleep(0)
        request.cancel()
        await asyncio.wait({request})
        return request.cancelled()

    async def act(server: ScriptedServer, client: httpx2.AsyncClient) -> None:
        for rounds in itertools.count():
            if not await is_cancelled_after(rounds, client):
                break
        assert len(server.connections) > 3  # some were cancelled after they were connected

    run(answer_all, act, tmp_path if is_secure else None)
    gc.collect()
    assert leaks == []


def _answer_as_names(*addresses: tuple[int, str]) -> Callable[..., Any]:
    """Return a `socket.getaddrinfo` that knows these addresses for every name."""

    def getaddrinfo(host: str, port: int, *_: Any, flags: int = 0, **__: Any) -> list[Any]:
        if flags & socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "a name")
        return [(family, socket.SOCK_STREAM, 0, "", (host, port)) for family, host in addresses]

    return getaddrinfo


DEAD = [(socket.AF_INET, f"127.0.0.{number}") for number in range(2, 6)]


@pytest.mark.parametrize(
    "addresses",
    [
        [*DEAD, (socket.AF_INET, "127.0.0.1")],
        [(socket.AF_INET, "127.0.0.1"), *DEAD],
        [(socket.AF_INET6, "::1"), (socket.AF_INET, "127.0.0.1")],
        [(socket.AF_UNIX, "no such family of addresses"), (socket.AF_INET, "127.0.0.1")],
    ],
)
def test_address_that_refuses_is_followed_by_the_next(
    addresses: list[tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(server: ScriptedServer, client: httpx2.AsyncClient) -> None:
        monkeypatch.setattr(socket, "getaddrinfo", _answer_as_names(*addresses))
        assert (await client.get(f"http://chat.example:{server.port}/")).text == "ok"
        assert len(server.connections) == 1

    run(answer_all, act)
    gc.collect()


def test_address_that_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """An IPv6 address that is not reachable must not use up the time for connecting."""
    silent = socket.create_server(("127.0.0.2", 0), backlog=0)
    port = silent.getsockname()[1]
    fillers = []
    for _ in range(4):  # until the kernel answers no more
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(("127.0.0.2", port))
        fillers.append(filler)

    async def main() -> None:
        server = ScriptedServer(answer_all)
        listener = await asyncio.start_server(server.serve, "127.0.0.1", port)
        addresses = (socket.AF_INET, "127.0.0.2"), (socket.AF_INET, "127.0.0.1")
        monkeypatch.setattr(socket, "getaddrinfo", _answer_as_names(*addresses))
        async with httpx2.AsyncClient(transport=HttpTransport(None, KEPT)) as client:
            timeout = httpx2.Timeout(PATIENCE, connect=PATIENCE)
            assert (await client.get(f"http://chat.example:{port}/", timeout=timeout)).text == "ok"
        listener.close()

    asyncio.run(main())
    for each in (silent, *fillers):
        each.close()


def test_name_that_cannot_be_encoded_is_a_failure_to_connect() -> None:
    async def act(server: ScriptedServer, client: httpx2.AsyncClient) -> None:
        for name in ("a" * 64 + ".example", "no-such-name.invalid"):
            with pytest.raises(httpx2.ConnectError):
                await client.get(f"http://{name}/")

    run(answer_all, act)
