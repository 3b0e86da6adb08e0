"""A crowd: 200 people chat over HTTP while 2,000 connections never ask and one token floods.

The answer time of the 200 is compared with their own a moment before, with the same server. Every
answer must be theirs, and every message must be in the store.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import tertulia
from benchmarks.child_processes import environment
from benchmarks.crowd_tokens import FLOODER, secret_of
from benchmarks.measure import percentile
from benchmarks.report import Limit, Row
from benchmarks.run_context import RunContext

SLOWER = Limit("≤", 2)
NOTHING = Limit("=", 0, "")
_FLOODING_CONNECTIONS = 16
_PAUSE_SECONDS = 2.0  # between an answer and the next message of a person, on average
_PERCENTILE = 0.95


class _Client:
    """One kept connection that posts JSON."""

    def __init__(self, port: int, name: str) -> None:
        self._port = port
        self._head = f"Host: x\r\nAuthorization: Bearer {secret_of(name)}\r\n"
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\n{self._head}Content-Length: {len(data)}\r\n\r\n"
        try:
            writer.write(head.encode() + data)
            answer_head = await reader.readuntil(b"\r\n\r\n")
            lines = answer_head.decode("latin-1").lower().split("\r\n")
            length = next(
                int(line.partition(":")[2]) for line in lines if line.startswith("content-length")
            )
            answer = await reader.readexactly(length)
        except (OSError, asyncio.IncompleteReadError):
            self.close()
            raise
        return int(lines[0].split()[1]), json.loads(answer)

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


class _People:
    """People who chat: each writes, reads the answer, pauses, and writes again."""

    def __init__(self, port: int, count: int) -> None:
        self._clients = [_Client(port, f"p{number}") for number in range(count)]
        self.sent = [0] * count
        self.wrong = 0

    async def chat(self, seconds: float) -> list[float]:
        """Chat for a while and return how long each answer took."""
        waits: list[float] = []
        end = time.monotonic() + seconds
        await asyncio.gather(*(self._chat(who, end, waits) for who in range(len(self.sent))))
        return waits

    async def _chat(self, who: int, end: float, waits: list[float]) -> None:
        chance = random.Random(who)
        await asyncio.sleep(chance.uniform(0, _PAUSE_SECONDS))
        while time.monotonic() < end:
            text = f"message {self.sent[who]} of person {who}"
            self.sent[who] += 1
            name = f"m{self.sent[who]}"
            began = time.perf_counter()
            answer = await self._ask(who, {"text": text, "conversation": "c", "message_id": name})
            waits.append(time.perf_counter() - began)
            self.wrong += text not in str(answer)
            await asyncio.sleep(chance.uniform(0, 2 * _PAUSE_SECONDS))

    async def _ask(self, who: int, body: dict[str, Any]) -> Any:
        """Post until there is an answer: a connection that was idle may have been closed."""
        while True:
            with suppress(OSError, asyncio.IncompleteReadError):
                status, answer = await self._clients[who].post("/turns", body)
                if status == 200:
                    return answer["text"]
            await asyncio.sleep(0.05)

    def close(self) -> None:
        for client in self._clients:
            client.close()


async def _idle(port: int) -> None:
    """Hold a connection that never sends a whole request; open it again when it is closed."""
    while True:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(b"GET / HT")
                while await reader.read(1000):
                    pass
            finally:
                writer.close()
        await asyncio.sleep(1)


async def _flood(port: int, statuses: dict[int, int]) -> None:
    """Post as fast as the server answers."""
    client, number = _Client(port, FLOODER), 0
    try:
        while True:
            number += 1
            with suppress(OSError, asyncio.IncompleteReadError):
                status, _ = await client.post("/turns", {"text": f"flood {number}" * 100})
                statuses[status] = statuses.get(status, 0) + 1
    finally:
        client.close()


@asynccontextmanager
async def _crowded(port: int, idle: int, statuses: dict[int, int]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(_idle(port)) for _ in range(idle)]
    await asyncio.sleep(2)
    tasks += [asyncio.create_task(_flood(port, statuses)) for _ in range(_FLOODING_CONNECTIONS)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _measure(
    port: int, people: int, idle: int, seconds: float
) -> tuple[list[float], list[float], _People, dict[int, int]]:
    crowd, statuses = _People(port, people), dict[int, int]()
    await crowd.chat(min(5.0, seconds))  # every conversation exists before the clock starts
    calm = await crowd.chat(seconds / 2)
    async with _crowded(port, idle, statuses):
        crowded = await crowd.chat(seconds)
    calm += await crowd.chat(seconds / 2)
    crowd.close()
    return calm, crowded, crowd, statuses


def run(context: RunContext) -> list[Row]:
    people, idle, seconds = context.sizes.flood
    path = context.new_path("crowd")
    with _server(path, people) as port:
        calm, crowded, crowd, statuses = asyncio.run(_measure(port, people, idle, seconds))
    lost = _missing(path, crowd.sent) + crowd.wrong
    before, during = percentile(calm, _PERCENTILE), percentile(crowded, _PERCENTILE)
    middle = percentile(calm, 0.5), percentile(crowded, 0.5)
    flood = ", ".join(f"{count:,} × {status}" for status, count in sorted(statuses.items()))
    size = f"{people} people, {idle:,} idle connections, one flooder for {seconds:g} s"
    return [
        Row(
            "crowd",
            f"answer time over HTTP, 95th percentile: {size}",
            during / before,
            SLOWER,
            ours=f"{during * 1000:.1f} ms (median {middle[1] * 1000:.1f})",
            against=f"{before * 1000:.1f} ms without them (median {middle[0] * 1000:.1f})",
            note=f"{len(crowded):,} answers; the flooder got {flood}",
            numbers={
                "crowded_ms": during * 1000,
                "calm_ms": before * 1000,
                "crowded_median_ms": middle[1] * 1000,
                "calm_median_ms": middle[0] * 1000,
            },
        ),
        Row("crowd_lost", "messages of these people lost, doubled or mixed up", lost, NOTHING, ""),
    ]


def _missing(path: Path, sent: list[int]) -> int:
    """Return how many messages are missing or doubled in the store."""
    wrong = 0
    with tertulia.open(path) as store:
        for who, count in enumerate(sent):
            source = tertulia.Source("api", "c", account=f"p{who}", user_id=f"p{who}")
            session = store.sessions.current(store.sessions.conversation(source))
            assert session is not None
            entries = store.transcript(session.id).entries()
            texts = [entry.body["content"] for entry in entries if entry.role == "user"]
            expected = {f"message {number} of person {who}" for number in range(count)}
            wrong += len(expected.symmetric_difference(texts)) + len(texts) - len(set(texts))
    return wrong


@contextmanager
def _server(path: Path, people: int) -> Iterator[int]:
    """Run a server process for the time of the block, and yield its port."""
    command = [sys.executable, "-m", "benchmarks.crowd_server", str(path), str(people)]
    with subprocess.Popen(
        command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        try:
            yield int(child.stdout.readline())
        finally:
            child.communicate(timeout=60)
