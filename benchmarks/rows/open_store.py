"""Opening a large store and finding one session, in a process that has just started."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import child_processes, peer_results
from benchmarks.measure import Contestant, Seconds, interleave
from benchmarks.raw_sqlite import RawSessions
from benchmarks.report import Limit, Row, milliseconds
from benchmarks.rows.find import filled_store
from benchmarks.run_context import RunContext


@dataclass(slots=True)
class NewProcess:
    """A contestant that starts a new process for each operation and measures inside it."""

    name: str
    path: Path
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def burst(self, times: int) -> list[Seconds]:
        return [self._run_one(next(self.numbers)) for _ in range(times)]

    def _run_one(self, number: int) -> Seconds:
        answer = child_processes.run_one(self.name, self.path, number)
        if not answer.get("touched"):
            raise RuntimeError(answer.get("problem", "the session it found was not touched"))
        return float(answer["seconds"])

    def rest(self) -> None:
        """Do nothing: the process has ended."""


def run(context: RunContext) -> list[Row]:
    count = context.sizes.sessions[-1]
    # The other stores open in a process that has already imported everything, which favours them.
    others = peer_results.prepare_peers(context, "open", "open", context.sizes.peer_sessions)
    contestants: list[Contestant] = [
        NewProcess("find", filled_store(context, count)),
        NewProcess("find_raw", _raw_store(context, count)),
        *others,
    ]
    samples = interleave(
        contestants, rounds=context.sizes.fresh_starts, times=1, budget=context.sizes.peer_budget
    )
    mine, base = samples["find"], samples["find_raw"].median
    peer_results.add_samples(
        context, "open", others, samples, unit_name="sessions", ours=mine.median, raw=base
    )
    return [
        Row(
            "open",
            f"open a store of {count:,} sessions and find one",
            mine.median * 1000,
            Limit("≤", 10, "ms"),
            unit="ms",
            ours=milliseconds(mine.median),
            against=f"raw {milliseconds(base)}",
            note=f"{mine.median / base:.1f}× raw, in new processes; "
            f"slowest {milliseconds(mine.worst)}",
            numbers={"ours_ms": mine.median * 1000, "against_ms": base * 1000},
        )
    ]


def _raw_store(context: RunContext, count: int) -> Path:
    path = context.new_path("raw")
    with closing(RawSessions(path, count)):
        return path
