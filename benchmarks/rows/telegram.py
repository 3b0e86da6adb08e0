"""A gateway with the Telegram adapter: a thousand chats at once, over HTTP on loopback.

The same work as in the row `gateway`, with a Bot API server in a process of its own. It is compared
with the adapter of that row, which is in the same process, in turn within the same run.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
from pathlib import Path
from typing import Any, NamedTuple

import psutil

import tertulia
from benchmarks.child_processes import environment
from benchmarks.report import Limit, Row
from benchmarks.rows.gateway import run_gateway
from benchmarks.run_context import RunContext
from benchmarks.telegram_server import TOKEN
from tertulia.agents.parrot import ParrotAgent
from tertulia.gateway.app import Gateway
from tertulia.gateway.settings import GatewaySettings
from tertulia.platforms.settings import PlatformSettings
from tertulia.platforms.telegram.adapter import TelegramAdapter

MINIMUM_RATIO = Limit("≥", 0.7)
GROWTH = Limit("≤", 1.1)
_LOOK_SECONDS = 0.2


class TelegramResult(NamedTuple):
    """The result of one run; `megabytes` is the memory from time to time."""

    rate: float
    lost: int
    doubled: int
    megabytes: list[float]
    processor_seconds: float


async def run_telegram(where: Path, people: int, messages: int) -> TelegramResult:
    """Run a gateway with a bot that `people` users write to."""
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.telegram_server", str(people), str(messages),
        env=environment(), stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert server.stdout is not None
    try:
        port = int(await server.stdout.readline())
        seen = asyncio.create_task(server.stdout.readline())
        megabytes, seconds = await _run_gateway(where, port, seen)
        result: dict[str, Any] = json.loads(seen.result())
    finally:
        server.kill()
        await server.wait()
    rate = people * messages / result["seconds"]
    return TelegramResult(rate, result["lost"], result["doubled"], megabytes, seconds)


async def _run_gateway(
    where: Path, port: int, seen: asyncio.Task[bytes]
) -> tuple[list[float], float]:
    """Run a gateway until the server has seen every answer; return memory and processor time."""
    settings = GatewaySettings(platforms={"telegram": PlatformSettings(admission="everyone")})
    process, megabytes = psutil.Process(), []
    before = sum(process.cpu_times()[:2])
    async with tertulia.aio.open(where) as store:
        adapter = TelegramAdapter(TOKEN, base_url=f"http://127.0.0.1:{port}")
        gateway = Gateway(store, ParrotAgent(), [adapter], settings=settings)
        running = asyncio.create_task(gateway.run())
        while not seen.done() and not running.done():
            await asyncio.wait([seen, running], timeout=_LOOK_SECONDS)
            megabytes.append(process.memory_info().rss / 1e6)
        seconds = sum(process.cpu_times()[:2]) - before
        gateway.stop()
        await running
    return megabytes, seconds


def run(context: RunContext) -> list[Row]:
    people, messages = context.sizes.crowd
    rounds = 1 if context.sizes.patience else 2
    results, rates = [], []
    for _ in range(rounds):
        inner = asyncio.run(run_gateway(context.new_path("inner"), people, messages))
        rates.append(inner.rate)
        path = context.new_path("telegram")
        results.append(asyncio.run(run_telegram(path, people, messages)))
    rate, inner_rate = statistics.median(item.rate for item in results), statistics.median(rates)
    turns = people * messages
    cost = results[-1].processor_seconds / turns * 1000
    return [
        Row(
            "telegram",
            f"the gateway with Telegram, {people:,} chats at once, {messages} messages each",
            rate / inner_rate,
            MINIMUM_RATIO,
            ours=f"{rate:,.0f} turns/s, {cost:.2f} ms of processor time each",
            against=f"{inner_rate:,.0f} turns/s with the adapter in the process",
            numbers={"turns_per_second": rate, "inner_turns_per_second": inner_rate},
        ),
        Row(
            "telegram_lost",
            "answers that are missing or came twice",
            sum(item.lost + item.doubled for item in results),
            Limit("≤", 0, ""),
            unit="",
        ),
        _memory_row(results[0].megabytes, turns),
    ]


def _memory_row(megabytes: list[float], turns: int) -> Row:
    """Compare the memory at the end with that after the first quarter, when all is warm."""
    first, last = megabytes[len(megabytes) // 4], megabytes[-1]
    return Row(
        "telegram_memory",
        f"memory after {turns:,} messages",
        last / first,
        # A short run is all warming up.
        GROWTH if turns >= 10_000 else None,
        ours=f"{last:,.0f} MB",
        against=f"{first:,.0f} MB after a quarter of them",
    )
