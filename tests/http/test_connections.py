"""Connections: they have limits, and those that never ask keep nobody out."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from tertulia import aio
from tertulia.agents import ParrotAgent
from tertulia.gateway.app import Gateway
from tertulia.http import serve
from tertulia.http.connections import ConnectionTable, LimitedProtocol
from tertulia.http.settings import HttpSettings
from tertulia.platforms.web import WebAdapter
from tests.http.agents import HeldAgent, SilentAgent
from tests.http.served_gateway import PATIENCE, SECRETS, ServedGateway, served_gateway


def connect(server: ServedGateway, data: bytes = b"", source: str = "127.0.0.1") -> socket.socket:
    address = urlsplit(server.url)
    connection = socket.create_connection(
        (address.hostname, address.port), PATIENCE, source_address=(source, 0)
    )
    connection.sendall(data)
    return connection


def read_to_end(connection: socket.socket) -> bytes:
    data = b""
    try:
        while chunk := connection.recv(65536):
            data += chunk
    except ConnectionResetError:
        pass
    return data


@pytest.fixture
def sockets() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize("part", [b"", b"GET / HT", b"GET /healthz HTTP/1.1\r\nHost: x\r\n"])
def test_incomplete_head_is_ended(tmp_path: Path, part: bytes) -> None:
    with (
        served_gateway(tmp_path / "talk.db", head_seconds=0.2) as server,
        connect(server, part) as connection,
    ):
        answer = read_to_end(connection)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "head_too_slow"


def test_second_head_has_the_same_limit(tmp_path: Path) -> None:
    whole = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    with (
        served_gateway(tmp_path / "talk.db", head_seconds=0.2) as server,
        connect(server, whole) as connection,
    ):
        # The whole response first: else the next head is there before the connection is idle, and
        # the time limit between two requests ends it too.
        answer = b""
        while not answer.endswith(b'{"status":"ok"}'):
            answer += connection.recv(65536)
        connection.sendall(b"GET /hea")
        assert read_to_end(connection) == b""
    assert answer.startswith(b"HTTP/1.1 200 ")


def test_trickled_body_of_refused_request_is_ended(tmp_path: Path) -> None:
    head = b"POST /turns HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"
    with (
        served_gateway(tmp_path / "talk.db", head_seconds=0.3) as server,
        connect(server, head) as connection,
    ):
        assert connection.recv(65536).startswith(b"HTTP/1.1 401 ")

        def trickle() -> None:
            deadline = time.monotonic() + PATIENCE
            while time.monotonic() < deadline:
                connection.sendall(b"x")
                time.sleep(0.02)

        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            trickle()


def test_idle_connections_give_way_to_new_ones(tmp_path: Path, sockets: ExitStack) -> None:
    """2,005 half requests stopped the server for everybody."""
    with served_gateway(tmp_path / "talk.db", connections=20, head_seconds=3600) as server:
        idle = [sockets.enter_context(connect(server, b"GET / HT")) for _ in range(45)]
        with server.client("ana") as client:
            for _ in range(3):
                assert client.get("/healthz").status_code == 200
            assert client.post("/turns", json={"text": "hola"}).status_code == 200
        assert read_to_end(idle[0]) == b""  # the one that was idle for longest


def test_connections_in_use_refuse_new_ones(tmp_path: Path, sockets: ExitStack) -> None:
    agent = HeldAgent()
    with served_gateway(tmp_path / "talk.db", agent=agent, connections=2) as server:
        body = json.dumps({"text": "hola"}).encode()
        request = (
            b"POST /turns HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %b\r\n"
            b"Content-Length: %d\r\n\r\n%b"
        )
        for name in ("ana", "bob"):
            data = request % (SECRETS[name].encode(), len(body), body)
            sockets.enter_context(connect(server, data))
            assert agent.began.acquire(timeout=PATIENCE)
        with connect(server) as connection:
            answer = read_to_end(connection)
        agent.may_go_on.set()
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"Retry-After: " in answer


def test_address_has_a_limit_of_its_own(tmp_path: Path, sockets: ExitStack) -> None:
    with served_gateway(
        tmp_path / "talk.db", connections_per_address=3, proxies=["127.0.0.1"], head_seconds=3600
    ) as server:
        first = sockets.enter_context(connect(server, source="127.0.0.9"))
        for _ in range(3):
            sockets.enter_context(connect(server, source="127.0.0.9"))
        assert read_to_end(first) == b""
        for _ in range(9):  # a proxy connects for many
            sockets.enter_context(connect(server))
        with server.client("ana") as client:
            assert client.get("/healthz").status_code == 200


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[LimitedProtocol]:
    """The connections that servers have accepted, in order."""
    accepted = []
    made = LimitedProtocol.connection_made

    def record(self: LimitedProtocol, transport: object) -> None:
        accepted.append(self)
        made(self, transport)  # type: ignore[arg-type]

    monkeypatch.setattr(LimitedProtocol, "connection_made", record)
    return accepted


def test_connections_that_come_together_are_accepted_a_few_at_a_time(
    tmp_path: Path, sockets: ExitStack, connections: list[LimitedProtocol]
) -> None:
    """The event loop ran nothing else until it had accepted hundreds of connections."""
    together = 100

    async def accepted_per_round() -> list[int]:
        async with aio.open(tmp_path / "talk.db") as store:
            gateway = Gateway(store, ParrotAgent(), [])
            async with serve(gateway, HttpSettings(port=0)) as address:
                # The event loop does not run meanwhile: all of them wait in the system's queue.
                for _ in range(together):
                    connection = socket.create_connection((address.host, address.port), PATIENCE)
                    sockets.enter_context(connection)
                counts = [0]
                while counts[-1] < together:
                    await asyncio.sleep(0)
                    counts.append(len(connections))
                for accepted in connections:
                    accepted.abort()
        return [after - before for before, after in pairwise(counts)]

    rounds = asyncio.run(accepted_per_round())
    assert sum(rounds) == together
    assert max(rounds) <= 16


def test_time_limits_of_heads_are_spread(
    tmp_path: Path, sockets: ExitStack, connections: list[LimitedProtocol]
) -> None:
    """Connections that were opened together were all closed, and came back, in one moment."""
    together = 40
    with served_gateway(tmp_path / "talk.db", head_seconds=1000) as server:
        began = server.loop.time()
        for _ in range(together):
            sockets.enter_context(connect(server, b"GET / HT"))
        with server.client() as client:
            assert client.get("/healthz").status_code == 200
        ends = [connection._head_timer for connection in connections[:together]]
        ended = server.loop.time()
    limits = [end.when() for end in ends if end is not None]
    assert len(limits) == together
    assert min(limits) >= began + 1000  # nobody has less time than the setting says
    assert max(limits) <= ended + 1250
    assert max(limits) - min(limits) > 100 + ended - began


def test_small_responses_are_sent_without_delay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without TCP_NODELAY each response on a kept connection came 40 ms late."""
    options = []
    made = LimitedProtocol.connection_made

    def record(self: LimitedProtocol, transport: object) -> None:
        made(self, transport)  # type: ignore[arg-type]
        connection = self.transport.get_extra_info("socket")
        options.append(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    monkeypatch.setattr(LimitedProtocol, "connection_made", record)
    with served_gateway(tmp_path / "talk.db") as server, server.client() as client:
        assert client.get("/healthz").status_code == 200
    assert options
    assert all(options)


@pytest.mark.parametrize(("descriptors", "limit"), [(None, 2000), (1024, 512), (8192, 2000)])
def test_connections_leave_half_of_the_descriptors(descriptors: int | None, limit: int) -> None:
    assert ConnectionTable(HttpSettings(), descriptors).limit == limit


def test_server_reads_how_many_descriptors_it_may_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sockets: ExitStack
) -> None:
    resource = pytest.importorskip("resource")
    read = resource.getrlimit
    monkeypatch.setattr(
        resource,
        "getrlimit",
        lambda kind: (8, 8) if kind == resource.RLIMIT_NOFILE else read(kind),
    )
    with served_gateway(tmp_path / "talk.db", head_seconds=3600) as server:
        first, *_ = (sockets.enter_context(connect(server)) for _ in range(5))
        assert read_to_end(first) == b""  # four may be open


def test_token_has_a_limit_of_streams(tmp_path: Path) -> None:
    with (
        served_gateway(
            tmp_path / "talk.db", adapters=[WebAdapter()], streams_per_token=1
        ) as server,
        server.client("ana") as client,
        client.stream("GET", "/web/a/events") as stream,
    ):
        lines = stream.iter_lines()
        assert next(lines).startswith(":")
        with server.client("ana") as other, other.stream("GET", "/web/b/events") as refused:
            assert refused.status_code == 429
            assert int(refused.headers["retry-after"]) >= 1
        with server.client("bob") as bob, bob.stream("GET", "/web/b/events") as own:
            assert own.status_code == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/turns", {"text": "hello"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hello"}]}),
        ("/v1/responses", {"input": "hello"}),
    ],
)
def test_streams_that_wait_for_their_first_event_count(
    tmp_path: Path, path: str, body: dict[str, Any]
) -> None:
    agent = SilentAgent()
    with (
        served_gateway(tmp_path / "talk.db", agent=agent, streams_per_token=1) as server,
        server.client("ana") as client,
        server.client("ana") as other,
        ThreadPoolExecutor(1) as pool,
    ):
        first = pool.submit(client.post, path, json={**body, "stream": True})
        agent.began.acquire()
        assert other.post(path, json={**body, "stream": True}).status_code == 429
        agent.may_go_on.set()
        assert first.result().status_code == 200
        assert other.post(path, json={**body, "stream": True}).status_code == 200


def test_address_cannot_use_up_the_streams_of_a_token_that_many_share(tmp_path: Path) -> None:
    with (
        served_gateway(
            tmp_path / "talk.db",
            adapters=[WebAdapter()],
            streams_per_address=1,
            proxies=["127.0.0.1"],
        ) as server,
        ExitStack() as stack,
    ):

        def open_stream(address: str) -> httpx2.Response:
            transport = httpx2.HTTPTransport(local_address=address)
            client = stack.enter_context(server.client("eve", transport=transport))
            visitor = client.post("/web/visitors").json()["visitor"]
            headers = {"X-Visitor-Id": visitor}
            return stack.enter_context(client.stream("GET", "/web/a/events", headers=headers))

        assert open_stream("127.0.0.9").status_code == 200
        assert open_stream("127.0.0.9").status_code == 429
        assert open_stream("127.0.0.8").status_code == 200
        for _ in range(2):  # only the proxy is known, not who is behind it
            assert open_stream("127.0.0.1").status_code == 200
