"""A crowd: 200 people chat over HTTP while 2,000 connections never ask and one token floods.

The answer time of the 200 is compared with their own before and after, with the same server. Every
answer must be theirs, and every message must be in the store. Those who disturb have a process of
their own: what it costs to open so many connections must not delay the clock of the people.
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
from benchmarks.kept_connection import KeptConnection
from benchmarks.measure import percentile
from benchmarks.report import Limit, Row
from benchmarks.run_context import RunContext

SLOWER = Limit("≤", 2)
NOTHING = Limit("=", 0, "")
_PAUSE_SECONDS = 2.0  # between an answer and the next message of a person, on average
_PERCENTILE = 0.95


class _People:
    """People who chat: each writes, reads the answer, pauses, and writes again."""

    def __init__(self, port: int, count: int) -> None:
        self._clients = [KeptConnection(port, f"p{number}") for number in range(count)]
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


async def _measure(
    port: int, people: int, idle: int, seconds: float
) -> tuple[list[float], list[float], _People, dict[int, int]]:
    crowd, statuses = _People(port, people), dict[int, int]()
    await crowd.chat(min(5.0, seconds))  # every conversation exists before the clock starts
    calm = await crowd.chat(seconds / 2)
    async with _disturbed(port, idle, statuses):
        crowded = await crowd.chat(seconds)
    calm += await crowd.chat(seconds / 2)
    crowd.close()
    return calm, crowded, crowd, statuses


@asynccontextmanager
async def _disturbed(port: int, idle: int, statuses: dict[int, int]) -> AsyncIterator[None]:
    """Let others disturb the server in the block; then add the statuses that the flooder got."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.crowd_clients", str(port), str(idle),
        env=environment(), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert child.stdout is not None
    await child.stdout.readline()  # they are connected
    try:
        yield
    finally:
        answer, _ = await child.communicate(b"")  # which ends its input
        statuses |= {int(status): count for status, count in json.loads(answer).items()}


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
