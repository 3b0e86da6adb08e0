"""Finding the session of a source, with the durable touch of its activity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from benchmarks import against, ours
from benchmarks.measure import Contestant, Operation, Samples, calm, interleave, was_disturbed
from benchmarks.raw import RawSessions
from benchmarks.report import Limit, Row, milliseconds, timing
from benchmarks.stage import Stage


def run(stage: Stage) -> list[Row]:
    others = against.joined(stage, "find", "find", stage.sizes.peer_sessions)
    small, _, large = stage.sizes.sessions
    everything = _timed(stage, others)
    found = calm(everything, f"raw {large}")
    disturbed = was_disturbed(everything[f"raw {large}"])
    medians = [found[f"{size}"].median for size in stage.sizes.sessions]
    raw = found[f"raw {large}"].median
    sizes = " / ".join(f"{size:,}" for size in stage.sizes.sessions)
    against.noted(stage, "find", others, found, counted="sessions", ours=medians[-1], raw=raw)
    return [
        timing(
            "find_growth",
            f"find a session among {large:,} against {small:,}",
            ours=medians[-1],
            against=("small", medians[0]),
            limit=Limit("≤", 1.2),
            note=f"among {sizes}: {' / '.join(map(milliseconds, medians))}; "
            f"one raw commit grew {raw / found[f'raw {small}'].median:.2f}×",
            disturbed=disturbed,
        ),
        timing(
            "find",
            f"find a session among {large:,}, touched durably",
            ours=medians[-1],
            against=("raw commit", raw),
            limit=Limit("≤", 2),
            disturbed=disturbed,
        ),
    ]


def filled(stage: Stage, count: int) -> Path:
    return stage.built(f"store of {count:,} sessions", _filler(count))


def _timed(stage: Stage, others: Sequence[Contestant]) -> dict[str, Samples]:
    contestants = list(others)
    with ExitStack() as stack:
        for size in stage.sizes.sessions:
            raw = stack.enter_context(closing(RawSessions(stage.new_path("raw"), size)))
            contestants += [_finder(stage, stack, size), Operation(f"raw {size}", raw.touch)]
        # As in a house that has run for a while: the log is written over, not made longer.
        for contestant in contestants[len(others) :]:
            contestant.burst(stage.sizes.commits_before)
        return interleave(
            contestants,
            rounds=2 * stage.sizes.rounds,
            times=25,
            budget=stage.sizes.peer_budget,
        )


def _finder(stage: Stage, stack: ExitStack, size: int) -> Operation:
    store = stack.enter_context(ours.open_store(filled(stage, size)))
    ours.check_touch(store, 0)
    pick = ours.some_source(size)
    return Operation(f"{size}", lambda: store.sessions.open(pick()))


def _filler(count: int) -> Callable[[Path], None]:
    return lambda path: ours.fill_sessions(path, count)
