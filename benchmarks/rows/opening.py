"""Opening a large store and finding one session, in a process that has just started."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import against, children
from benchmarks.measure import Contestant, Seconds, interleave
from benchmarks.raw import RawSessions
from benchmarks.report import Limit, Row, milliseconds
from benchmarks.rows.find import filled
from benchmarks.stage import Stage


@dataclass(slots=True)
class Fresh:
    """A contestant that starts a new process for each operation, and takes the time within it."""

    name: str
    path: Path
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def burst(self, times: int) -> list[Seconds]:
        return [self._one(next(self.numbers)) for _ in range(times)]

    def _one(self, number: int) -> Seconds:
        answer = children.fresh(self.name, self.path, number)
        if not answer.get("touched"):
            raise RuntimeError(answer.get("problem", "the session it found was not touched"))
        return float(answer["seconds"])

    def rest(self) -> None:
        """Its process has ended."""


def run(stage: Stage) -> list[Row]:
    count = stage.sizes.sessions[-1]
    # The others open in a process that has imported everything, which is kinder than ours.
    others = against.joined(stage, "open", "open", stage.sizes.peer_sessions)
    contestants: list[Contestant] = [
        Fresh("find", filled(stage, count)),
        Fresh("find_raw", _raw_store(stage, count)),
        *others,
    ]
    found = interleave(
        contestants, rounds=stage.sizes.fresh_starts, times=1, budget=stage.sizes.peer_budget
    )
    mine, base = found["find"], found["find_raw"].median
    against.noted(stage, "open", others, found, counted="sessions", ours=mine.median, raw=base)
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


def _raw_store(stage: Stage, count: int) -> Path:
    path = stage.new_path("raw")
    with closing(RawSessions(path, count)):
        return path
