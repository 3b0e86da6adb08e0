"""A whole gateway with the parrot agent: a thousand conversations at once, against nanobot's loop.

Each user writes, waits for the answer, and writes again. Every step is durable: a message is stored
before it is accepted, the answer before it is sent, and the outcome of sending after it.
"""

from __future__ import annotations

import asyncio
import gc
import math
import resource
import sys
import time
from pathlib import Path
from typing import NamedTuple

import tertulia
from benchmarks import peer_results
from benchmarks.measure import percentile
from benchmarks.peers import PeerError
from benchmarks.report import Limit, Row
from benchmarks.run_context import RunContext
from tertulia import Source
from tertulia.agents.parrot import ParrotAgent
from tertulia.cli.serve import tune_garbage_collection
from tertulia.gateway.app import Gateway
from tertulia.gateway.settings import GatewaySettings
from tertulia.platforms.base import Adapter, Incoming, Outgoing, Receive
from tertulia.platforms.settings import PlatformSettings

# The released package needs a minute to answer each of a thousand users once.
PEER_SECONDS = 15.0
BARE_SECONDS = 60.0
MINIMUM_RATIO = Limit("≥", 10)
LAG = Limit("≤", 20, "ms")
_LOOK_SECONDS = 0.005


class GatewayResult(NamedTuple):
    """The result of one run."""

    rate: float
    waits: list[float]
    lags: list[float]
    megabytes: float


class Crowd(Adapter):
    """A chat app with `people` users, each of whom writes `messages` messages.

    With `seconds` they stop writing after that time. Each account has its own users.
    """

    name = "telegram"

    def __init__(
        self, people: int, messages: int, *, seconds: float = math.inf, account: str = ""
    ) -> None:
        self.account = account
        self._people = people
        self._messages = messages
        self._seconds = seconds
        self._answers: dict[str, asyncio.Future[None]] = {}
        self.waits: list[float] = []
        self.ended = asyncio.Event()

    async def listen(self, receive: Receive) -> None:
        end = time.perf_counter() + self._seconds
        await asyncio.gather(*(self._run_user(receive, f"{n}", end) for n in range(self._people)))
        self.ended.set()

    async def _run_user(self, receive: Receive, chat: str, end: float) -> None:
        account = self.account or ""
        source = Source("telegram", chat, user_id=chat, user_name="Ana", account=account)
        for number in range(self._messages):
            began = time.perf_counter()
            if began > end:
                return
            answered = self._answers[chat] = asyncio.get_running_loop().create_future()
            text = f"question {number}: what about the harbour, and who told you so?"
            await receive(Incoming(source=source, text=text, message_id=f"{number}"))
            await answered
            self.waits.append(time.perf_counter() - began)

    async def send(self, message: Outgoing) -> None:
        self._answers[str(message.chat_id)].set_result(None)


async def run_gateway(
    where: Path | str,
    people: int,
    messages: int = 1_000_000,
    *,
    seconds: float = math.inf,
    account: str = "",
) -> GatewayResult:
    """Run a gateway with `people` users of an account, on a store that other nodes may share."""
    settings = GatewaySettings(platforms={"telegram": PlatformSettings(admission="everyone")})
    async with tertulia.aio.open(where) as store:
        crowd = Crowd(people, messages, seconds=seconds, account=account)
        gateway = Gateway(store, ParrotAgent(), [crowd], settings=settings)
        threshold = gc.get_threshold()
        tune_garbage_collection()  # as `tertulia run` does
        began = time.perf_counter()
        running = asyncio.create_task(gateway.run())
        lags: list[float] = []
        while not crowd.ended.is_set() and not running.done():
            at = time.perf_counter()
            await asyncio.sleep(_LOOK_SECONDS)
            lags.append(max(0.0, time.perf_counter() - at - _LOOK_SECONDS))
        took = time.perf_counter() - began
        gateway.stop()
        await running
        gc.set_threshold(*threshold)
        gc.unfreeze()
        assert await store.sessions.count() >= people
        assert seconds < math.inf or len(crowd.waits) == people * messages
    return GatewayResult(len(crowd.waits) / took, crowd.waits, lags, _megabytes())


def run(context: RunContext) -> list[Row]:
    people, messages = context.sizes.crowd
    result = asyncio.run(run_gateway(context.new_path("gateway"), people, messages))
    theirs = _measure_nanobot(context, people, messages, result, PEER_SECONDS, is_bare=False)
    bare = _measure_nanobot(context, people, messages, result, BARE_SECONDS, is_bare=True)
    size = f"{people:,} conversations at once, {messages} messages each"
    p50, p99 = percentile(result.waits, 0.5), percentile(result.waits, 0.99)
    lag = percentile(result.lags, 0.99) * 1000
    rate = Row(
        "gateway",
        f"the gateway with the parrot, {size}",
        None if theirs is None else result.rate / theirs,
        MINIMUM_RATIO,
        ours=f"{result.rate:,.0f} turns/s",
        against="nanobot was not measured" if theirs is None else f"nanobot {theirs:,.0f} turns/s",
        numbers={
            "turns_per_second": result.rate,
            "nanobot_turns_per_second": theirs or 0.0,
            "bare_nanobot_turns_per_second": bare or 0.0,
            "p50_ms": p50 * 1000,
            "p99_ms": p99 * 1000,
            "peak_megabytes": result.megabytes,
        },
    )
    stripped = Row(
        "gateway_bare",
        "the same, against nanobot with all of its skills switched off",
        None if bare is None else result.rate / bare,
        ours=f"{result.rate:,.0f} turns/s",
        against="nanobot was not measured" if bare is None else f"nanobot {bare:,.0f} turns/s",
    )
    lags = Row(
        "gateway_lag",
        "the gateway's event loop lag, 99th percentile",
        lag,
        LAG,
        unit="ms",
        ours=f"{lag:.1f} ms",
        against=f"an answer: p50 {p50 * 1000:,.0f} ms, p99 {p99 * 1000:,.0f} ms,"
        f" {result.megabytes:,.0f} MB",
        numbers={"p99_ms": lag, "median_ms": percentile(result.lags, 0.5) * 1000},
    )
    return [rate, stripped, lags]


def _measure_nanobot(
    context: RunContext,
    people: int,
    messages: int,
    result: GatewayResult,
    seconds: float,
    *,
    is_bare: bool,
) -> float | None:
    for peer in context.peers:
        try:
            rate: float = peer.figure(
                "gateway", people=people, messages=messages, seconds=seconds, is_bare=is_bare
            )
        except PeerError as problem:
            peer_results.add_problem(context, "gateway", peer, problem)
            continue
        peer_results.add_row(
            context, "gateway_bare" if is_bare else "gateway", peer, rate,
            size=f"{people:,} conversations", ours=result.rate, unit="turns/s",
        )  # fmt: skip
        return rate
    return None


def _megabytes() -> float:
    """Return the peak memory of this process in megabytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1_000_000 if sys.platform == "darwin" else 1_000)
