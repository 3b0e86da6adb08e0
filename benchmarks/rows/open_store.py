"""Opening a large store and finding one session, in a process that has just started.

The first call after opening is shown alone as well: what opening leaves for later is in it.
"""

from __future__ import annotations

import itertools
import statistics
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
    first_calls: list[Seconds] = field(default_factory=list)

    def burst(self, times: int) -> list[Seconds]:
        return [self._run_one(next(self.numbers)) for _ in range(times)]

    def _run_one(self, number: int) -> Seconds:
        answer = child_processes.run_one(self.name, self.path, number)
        if not answer.get("touched"):
            raise RuntimeError(answer.get("problem", "the session it found was not touched"))
        self.first_calls.append(float(answer["first_call"]))
        return float(answer["seconds"])

    def rest(self) -> None:
        """Do nothing: the process has ended."""


def run(context: RunContext) -> list[Row]:
    count = context.sizes.sessions[-1]
    # The other stores open in a process that has already imported everything, which favours them.
    others = peer_results.prepare_peers(context, "open", "open", context.sizes.peer_sessions)
    tertulia = NewProcess("find", filled_store(context, count))
    raw = NewProcess("find_raw", _raw_store(context, count))
    contestants: list[Contestant] = [tertulia, raw, *others]
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
        ),
        _first_call_row(tertulia, raw, count),
    ]


def _first_call_row(tertulia: NewProcess, raw: NewProcess, count: int) -> Row:
    # Without that of the warm-up, which reads the file from the disk.
    ours, base = (statistics.median(process.first_calls[1:]) for process in (tertulia, raw))
    return Row(
        "first_call",
        f"the first call after opening a store of {count:,} sessions",
        ours * 1000,
        Limit("≤", 1.5, "ms"),
        unit="ms",
        ours=milliseconds(ours),
        against=f"raw {milliseconds(base)}",
        note=f"{ours / base:.1f}× raw: both find a session and touch it durably",
        numbers={"ours_ms": ours * 1000, "against_ms": base * 1000},
    )


def _raw_store(context: RunContext, count: int) -> Path:
    path = context.new_path("raw")
    with closing(RawSessions(path, count)):
        return path
