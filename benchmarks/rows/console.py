"""The console: weight of a page, growth with the store, and what open pages cost.

Pages are asked for in this process, without a network. What open pages cost is measured with a
server in a process of its own: its processor time while nothing happens, and its turns per second
with and without the pages, in turn.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import tertulia
from benchmarks import store_under_test
from benchmarks.child_processes import environment
from benchmarks.console_server import OWNER
from benchmarks.corpus import Corpus
from benchmarks.crowd_tokens import secret_of
from benchmarks.measure import Operation, Samples, interleave
from benchmarks.report import Limit, Row, timing
from benchmarks.run_context import RunContext
from tertulia import aio
from tertulia.agents.parrot import ParrotAgent
from tertulia.console.app import console_pages
from tertulia.gateway.app import Gateway
from tertulia.http import HttpSettings, Token
from tertulia.http.app import application
from tertulia.platforms.web import WebAdapter
from tertulia.testing import FakeClock

GROWTH = Limit("≤", 1.2)
_DAYS = 31
_PEOPLE = 1_000
_DEAD = 50
_PAGES = 50
_CALLS_AT_ONCE = 2_000
_WRITERS = 8
_FULL_PAGE = 200  # less than this, and a page would have less to show


class _Size(NamedTuple):
    """How much a store has."""

    sessions: int
    messages: int
    calls: int
    deliveries: int


def run(context: RunContext) -> list[Row]:
    sessions, messages = context.sizes.sessions[-1], context.sizes.messages[-1]
    large = _Size(sessions, messages, 10 * messages, messages // 10)
    small = _Size(*(max(_FULL_PAGE, number // 100) for number in large))
    with ExitStack() as stack:
        few = stack.enter_context(_Pages.opened(_filled(context, small)))
        many = stack.enter_context(_Pages.opened(_filled(context, large)))
        rows = _weights(many)
        rows += _growth(context, few, many, large)
    return rows + _open_pages(context)


# -- stores


def _filled(context: RunContext, size: _Size) -> Path:
    return context.built(f"console of {size.sessions:,} sessions", lambda path: _fill(path, size))


def _fill(path: Path, size: _Size) -> None:
    """Fill a store: many sessions, one of them long, calls of a month, deliveries."""
    store_under_test.fill_sessions(path, size.sessions)
    store_under_test.fill_session(path, size.messages)
    clock = FakeClock(datetime.now(UTC) - timedelta(days=_DAYS))
    step = timedelta(days=_DAYS) / size.calls
    with tertulia.open(path, settings=tertulia.Settings(durability="fast"), clock=clock) as store:
        people = [
            store.sessions.open(store_under_test.source(number), force_new=False).id
            for number in range(min(_PEOPLE, size.sessions))
        ]

        def add_calls(first: int) -> None:
            for number in range(first, min(first + _CALLS_AT_ONCE, size.calls)):
                clock.forward(seconds=step.total_seconds())
                store.usage.add(people[number % len(people)], store_under_test.USAGE)

        for first in range(0, size.calls, _CALLS_AT_ONCE):
            store.in_one_commit(lambda first=first: add_calls(first))  # type: ignore[misc]
        _add_deliveries(store, size.deliveries)
        store.settle()


def _add_deliveries(store: tertulia.Store, count: int) -> None:
    for number in range(count + _DEAD):
        store.outbox.put("Done.", "origin", origin=store_under_test.source(number % 1_000))
        for delivery in store.outbox.claim():
            if number < count:
                store.outbox.done(delivery)
            else:
                store.outbox.failed(delivery, "the chat is gone", outcome="dead")


# -- pages in this process


class _Pages:
    """The console of a store, asked without a network."""

    def __init__(self, loop: asyncio.AbstractEventLoop, store: aio.Store) -> None:
        tokens = (Token(name=OWNER, secret=secret_of(OWNER), role="owner"),)
        settings = HttpSettings(port=0, tokens=tokens, requests_per_minute=100_000_000)
        gateway = Gateway(store, ParrotAgent(), [WebAdapter()])
        self._app = application(gateway, settings, pages=console_pages)
        self._loop = loop
        self.store = store
        self._secret = store.sync.browsers.sign_in_as(OWNER).secret
        sessions = store.sync.sessions
        source = store_under_test.source(0)
        current = sessions.current(sessions.conversation(source))
        if current is None:
            raise RuntimeError("the long session is not there")
        self.session = current.id

    @classmethod
    @contextmanager
    def opened(cls, path: Path) -> Iterator[_Pages]:
        loop = asyncio.new_event_loop()
        store = loop.run_until_complete(aio.open(str(path)))
        try:
            yield cls(loop, store)
        finally:
            loop.run_until_complete(store.close())
            loop.close()

    def wait_for(self, work: Callable[[], Awaitable[Any]]) -> Any:
        async def run() -> Any:
            return await work()

        return self._loop.run_until_complete(run())

    def get(self, address: str) -> bytes:
        """Return the body of a page; raise unless it is there."""
        status, body = self._loop.run_until_complete(self._get(address))
        if status != 200:
            raise RuntimeError(f"{address} answered {status}")
        return body

    async def _get(self, address: str) -> tuple[int, bytes]:
        path, _, query = address.partition("?")
        headers = [(b"host", b"127.0.0.1"), (b"cookie", f"tertulia_80={self._secret}".encode())]
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET",
            "scheme": "http", "path": path, "raw_path": path.encode(), "root_path": "",
            "query_string": query.encode(), "headers": headers, "server": ("127.0.0.1", 80),
            "client": ("127.0.0.1", 1),
        }  # fmt: skip
        status, chunks = 0, []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            nonlocal status
            status = message.get("status", status)
            chunks.append(message.get("body", b""))

        await self._app(scope, receive, send)
        return status, b"".join(chunks)


def _weights(pages: _Pages) -> list[Row]:
    page = pages.get("/console/sessions")
    if page.count(b'<li id="row-') != 50:
        raise RuntimeError("the list does not show 50 sessions")
    files = re.findall(rb'(?:src|href)="(/console/assets/[^"]+)"', page)
    bodies = [page, *(pages.get(name.decode()) for name in files)]
    raw, packed = sum(map(len, bodies)), sum(len(gzip.compress(body)) for body in bodies)
    return [
        Row("console_weight", "a first page with 50 rows, script and style", raw / 1e3,
            Limit("≤", 100, "KB"), "KB"),
        Row("console_packed", "the same, packed", packed / 1e3, Limit("≤", 35, "KB"), "KB"),
        Row("console_later", "a later page with 50 rows", len(page) / 1e3,
            Limit("≤", 30, "KB"), "KB"),
    ]  # fmt: skip


def _growth(context: RunContext, few: _Pages, many: _Pages, large: _Size) -> list[Row]:
    addresses = {
        "list": "/console/sessions",
        "window": "/console/sessions/{session}",
        "deliveries": "/console/deliveries",
        "usage": "/console/usage",
    }
    operations = [
        _page_operation(f"{name} {label}", pages, address.format(session=pages.session))
        for name, address in addresses.items()
        for label, pages in (("small", few), ("large", many))
    ]
    operations.append(Operation("bare", lambda: many.wait_for(lambda: _bare_list(many.store))))
    samples = interleave(operations, rounds=context.sizes.rounds, times=10)
    size = f"{large.sessions:,} sessions, {large.messages:,} messages, {large.calls:,} calls"
    rows = [
        timing(
            f"console_{name}", f"the page of the {name} with {size} against 1 % of that",
            ours=samples[f"{name} large"].median,
            against=("small", samples[f"{name} small"].median), limit=GROWTH,
        )
        for name in addresses
    ]  # fmt: skip
    return [*rows, _against_bare(samples)]


def _page_operation(name: str, pages: _Pages, address: str) -> Operation:
    return Operation(name, lambda: pages.get(address))


async def _bare_list(store: aio.Store) -> None:
    page = await store.sessions.find(limit=50)
    await store.sessions.last_words([session.id for session in page.items])


def _against_bare(samples: dict[str, Samples]) -> Row:
    return timing(
        "console_page", "the page of 50 sessions against its bare reads",
        ours=samples["list large"].median, against=("bare reads", samples["bare"].median),
        limit=Limit("≤", 3),
    )  # fmt: skip


# -- open pages of a server


class _Server(NamedTuple):
    """A running server."""

    port: int
    child: subprocess.Popen[str]

    def processor_seconds(self) -> float:
        """Return how much processor time the server has used so far."""
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.write("\n")
        self.child.stdin.flush()
        return float(self.child.stdout.readline())


@contextmanager
def _server(path: Path) -> Iterator[_Server]:
    command = [sys.executable, "-m", "benchmarks.console_server", str(path), str(_WRITERS)]
    with subprocess.Popen(
        command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        try:
            yield _Server(int(child.stdout.readline()), child)
        finally:
            child.communicate(timeout=60)


def _open_pages(context: RunContext) -> list[Row]:
    path = context.new_path("console")
    store_under_test.fill_sessions(path, 100)
    with tertulia.open(path) as store:
        secret = store.browsers.sign_in_as(OWNER).secret
        session = store.sessions.open(store_under_test.source(0)).id
        store.transcript(session).extend(Corpus().turn(0))
    with _server(path) as server:
        return asyncio.run(_measure_pages(context, server, secret, session))


async def _measure_pages(
    context: RunContext, server: _Server, secret: str, session: str
) -> list[Row]:
    seconds = context.sizes.caller_seconds * 10
    idle_without = await _processor_share(server, seconds)
    async with asyncio.TaskGroup() as group:
        streams = await _open_streams(group, server.port, secret, session)
        await asyncio.sleep(3)
        idle_with = await _processor_share(server, seconds)
        for stream in streams:
            stream.cancel()
    with_pages, without = [], []
    for number in range(context.sizes.caller_rounds):
        without.append(await _turns_per_second(server.port, seconds / 2, f"{number} without"))
        async with asyncio.TaskGroup() as group:
            streams = await _open_streams(group, server.port, secret, session)
            with_pages.append(await _turns_per_second(server.port, seconds / 2, f"{number} with"))
            for stream in streams:
                stream.cancel()
    rates = statistics.median(with_pages), statistics.median(without)
    return [
        Row(
            "console_idle", f"processor for {_PAGES} idle pages, of one core",
            100 * max(0.0, idle_with - idle_without), Limit("≤", 2, "%"), "%",
            ours=f"{100 * idle_with:.1f} %", against=f"{100 * idle_without:.1f} % without pages",
            numbers={"with": idle_with, "without": idle_without},
        ),
        Row(
            "console_turns", f"turns per second with {_PAGES} open pages against none",
            rates[0] / rates[1], Limit("≥", 0.95), ours=f"{rates[0]:,.0f}/s",
            against=f"{rates[1]:,.0f}/s", numbers={"with": rates[0], "without": rates[1]},
        ),
    ]  # fmt: skip


async def _processor_share(server: _Server, seconds: float) -> float:
    """Return how much of one core the server uses while nobody asks it anything."""
    before, began = server.processor_seconds(), time.perf_counter()
    await asyncio.sleep(seconds)
    return (server.processor_seconds() - before) / (time.perf_counter() - began)


async def _open_streams(
    group: asyncio.TaskGroup, port: int, secret: str, session: str
) -> list[asyncio.Task[None]]:
    """Open pages of five kinds, and wait until each has its first event."""
    addresses = ("/", "/sessions", f"/sessions/{session}", "/deliveries", "/nodes")
    head = f"Host: 127.0.0.1:{port}\r\nCookie: tertulia_{port}={secret}\r\n\r\n"
    tasks = []
    for number in range(_PAGES):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        address = f"/console/live?at=/console{addresses[number % len(addresses)]}"
        writer.write(f"GET {address} HTTP/1.1\r\n{head}".encode())
        if b" 200 " not in await reader.readline():
            raise RuntimeError(f"{address} did not open a stream")
        tasks.append(group.create_task(_read_stream(reader, writer)))
    return tasks


async def _read_stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while await reader.read(65_536):
            pass
    finally:
        writer.close()


async def _turns_per_second(port: int, seconds: float, conversation: str) -> float:
    """Return how many turns writers get answered who write as fast as they are answered.

    Each writer begins a conversation: the longer one is, the more an agent has to read.
    """
    end = time.monotonic() + seconds
    writers = (_write(port, number, conversation, end) for number in range(_WRITERS))
    return sum(await asyncio.gather(*writers)) / seconds


async def _write(port: int, number: int, conversation: str, end: float) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"Host: x\r\nAuthorization: Bearer {secret_of(f'p{number}')}\r\n"
    body = json.dumps({"text": "How are you?", "conversation": conversation}).encode()
    request = f"POST /turns HTTP/1.1\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    answered = 0
    with suppress(asyncio.IncompleteReadError):
        while time.monotonic() < end:
            writer.write(request)
            lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
            if " 200 " not in lines[0]:
                raise RuntimeError(f"a turn was answered with {lines[0]}")
            length = next(line for line in lines if line.startswith("content-length"))
            await reader.readexactly(int(length.partition(":")[2]))
            answered += 1
    writer.close()
    return answered
