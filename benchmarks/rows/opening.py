"""Opening a large store and finding one session, in a process that has just started."""

from __future__ import annotations

import statistics
from contextlib import closing
from pathlib import Path

from benchmarks import against, children
from benchmarks.measure import interleave
from benchmarks.raw import RawSessions
from benchmarks.report import Limit, Row, milliseconds
from benchmarks.rows.find import filled
from benchmarks.stage import Stage


def run(stage: Stage) -> list[Row]:
    count = stage.sizes.sessions[-1]
    path, raw_path = filled(stage, count), _raw_store(stage, count)
    mine, raws = [], []
    for number in range(stage.sizes.fresh_starts):
        mine.append(float(children.fresh("find", path, number)["seconds"]))
        raws.append(float(children.fresh("find_raw", raw_path, number)["seconds"]))
    seconds, base = statistics.median(mine), statistics.median(raws)
    for size in stage.sizes.peer_sessions:
        _others(stage, size, ours_seconds=seconds, raw_seconds=base)
    return [
        Row(
            "open",
            f"open a store of {count:,} sessions and find one",
            seconds * 1000,
            Limit("≤", 10, "ms"),
            unit="ms",
            ours=milliseconds(seconds),
            against=f"raw {milliseconds(base)}",
            note=f"{seconds / base:.1f}× raw, in new processes; slowest {milliseconds(max(mine))}",
            numbers={"ours_ms": seconds * 1000, "against_ms": base * 1000},
        )
    ]


def _raw_store(stage: Stage, count: int) -> Path:
    path = stage.new_path("raw")
    with closing(RawSessions(path, count)):
        return path


def _others(stage: Stage, size: int, *, ours_seconds: float, raw_seconds: float) -> None:
    """They open in a process that has imported everything, which is kinder than ours."""
    ready = against.prepared(stage, "open", "open", size)
    theirs = interleave(ready, rounds=3, times=2, budget=stage.sizes.peer_budget)
    against.noted(
        stage,
        "open",
        ready,
        theirs,
        size=f"{size:,} sessions",
        ours=ours_seconds,
        raw=raw_seconds,
    )
