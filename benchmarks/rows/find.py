"""Finding the session of a source, with the durable touch of its activity."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

from benchmarks import against, ours
from benchmarks.measure import Operation, Samples, interleave
from benchmarks.raw import RawSessions
from benchmarks.report import Limit, Row, milliseconds, timing
from benchmarks.stage import Stage


def run(stage: Stage) -> list[Row]:
    found = _timed(stage)
    small, _, large = stage.sizes.sessions
    for size in stage.sizes.peer_sessions:
        _others(stage, size, found)
    medians = [found[f"{size}"].median for size in stage.sizes.sessions]
    raw = found[f"raw {large}"].median
    sizes = " / ".join(f"{size:,}" for size in stage.sizes.sessions)
    return [
        timing(
            "find_growth",
            f"find a session among {large:,} against {small:,}",
            ours=medians[-1],
            against=("small", medians[0]),
            limit=Limit("≤", 1.2),
            note=f"among {sizes}: {' / '.join(map(milliseconds, medians))}; "
            f"one raw commit grew {raw / found[f'raw {small}'].median:.2f}×",
        ),
        timing(
            "find",
            f"find a session among {large:,}, touched durably",
            ours=medians[-1],
            against=("raw commit", raw),
            limit=Limit("≤", 2),
        ),
    ]


def filled(stage: Stage, count: int) -> Path:
    return stage.built(f"store of {count:,} sessions", _filler(count))


def _timed(stage: Stage) -> dict[str, Samples]:
    contestants = []
    with ExitStack() as stack:
        for size in stage.sizes.sessions:
            raw = stack.enter_context(closing(RawSessions(stage.new_path("raw"), size)))
            contestants += [_finder(stage, stack, size), Operation(f"raw {size}", raw.touch)]
        return interleave(contestants, rounds=2 * stage.sizes.rounds, times=25)


def _finder(stage: Stage, stack: ExitStack, size: int) -> Operation:
    store = stack.enter_context(ours.open_store(filled(stage, size)))
    pick = ours.some_source(size)
    return Operation(f"{size}", lambda: store.sessions.open(pick()))


def _others(stage: Stage, size: int, found: dict[str, Samples]) -> None:
    """Against what we and raw needed at the nearest size: ours is flat, so any would do."""
    ready = against.prepared(stage, "find", "find", size)
    theirs = interleave(ready, rounds=4, times=25, budget=stage.sizes.peer_budget)
    large = stage.sizes.sessions[-1]
    against.noted(
        stage,
        "find",
        ready,
        theirs,
        size=f"{size:,} sessions",
        ours=found[f"{large}"].median,
        raw=found[f"raw {large}"].median,
    )


def _filler(count: int) -> Callable[[Path], None]:
    return lambda path: ours.fill_sessions(path, count)
