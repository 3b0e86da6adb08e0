"""Sums of usage over a year: of many calls, and of 1 % of them."""

from __future__ import annotations

import random
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import tertulia
from benchmarks import store_under_test
from benchmarks.measure import Operation, interleave
from benchmarks.report import Limit, Row, timing
from benchmarks.run_context import RunContext
from tertulia import Source, Store, Usage
from tertulia.records.usage import Grouping
from tertulia.testing import FakeClock

_DAYS = 365
_PEOPLE = 1_000
_PLATFORMS = ("telegram", "discord", "slack", "signal")
_MODELS = ("gpt-5", "gpt-5-mini", "gpt-4o", "claude-sonnet-4-5", "local")
_CALLS_AT_ONCE = 2_000
# Sums by session are left out: they read the ledger.
_GROUPINGS: tuple[Grouping, ...] = ("day", "model", "platform", "person")


def run(context: RunContext) -> list[Row]:
    many = 10 * context.sizes.messages[-1]
    few = many // 100
    with ExitStack() as stack:
        stores = {
            count: stack.enter_context(store_under_test.open_store(_filled(context, count)))
            for count in (few, many)
        }
        samples = interleave(
            [
                Operation(f"{by} {count}", partial(store.usage.sum, by))
                for by in _GROUPINGS
                for count, store in stores.items()
            ],
            rounds=context.sizes.rounds,
            times=10,
        )
        for by in _GROUPINGS:
            _check(stores[many], by, many)
    return [
        timing(
            "usage_sum" if by == "day" else f"usage_sum_{by}",
            f"the usage by {by} of {many:,} calls in a year against 1 % of them",
            ours=samples[f"{by} {many}"].median,
            against=("small", samples[f"{by} {few}"].median),
            limit=Limit("≤", 1.3),
        )
        for by in _GROUPINGS
    ]


def _check(store: Store, by: Grouping, calls: int) -> None:
    """Raise if calls are missing from a sum: skipped work would give good times."""
    if sum(usage.output for usage in store.usage.sum(by).values()) != calls:
        raise RuntimeError(f"the usage by {by} is not that of {calls:,} calls")


def _filled(context: RunContext, count: int) -> Path:
    return context.built(f"{count:,} calls", lambda path: _fill(path, count))


def _fill(path: Path, count: int) -> None:
    clock = FakeClock(datetime.now(UTC) - timedelta(days=_DAYS))
    step = timedelta(days=_DAYS) / count
    draw = random.Random(1)
    settings = tertulia.Settings(durability="fast")
    with tertulia.open(path, settings=settings, clock=clock) as store:
        people = [store.sessions.open(_source(number)).id for number in range(_PEOPLE)]

        def add_calls(number: int) -> None:
            for _ in range(number):
                clock.forward(seconds=step.total_seconds())
                usage = Usage(input=812, output=1, model=draw.choice(_MODELS))
                store.usage.add(draw.choice(people), usage)

        for first in range(0, count, _CALLS_AT_ONCE):
            store.in_one_commit(partial(add_calls, min(_CALLS_AT_ONCE, count - first)))
        clock.forward(hours=1)
        store.settle()


def _source(number: int) -> Source:
    platform = _PLATFORMS[number % len(_PLATFORMS)]
    return Source(platform, str(number), user_id=str(number))
