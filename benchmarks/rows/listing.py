"""The 50 sessions with the newest activity."""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks import against, ours
from benchmarks.measure import Operation, interleave
from benchmarks.report import Limit, Row, timing
from benchmarks.rows.find import filled
from benchmarks.stage import Stage


def run(stage: Stage) -> list[Row]:
    small, _, large = stage.sizes.sessions
    others = against.joined(stage, "list", "list", stage.sizes.peer_sessions)
    with ExitStack() as stack:
        found = interleave(
            [_lister(stage, stack, small), _lister(stage, stack, large), *others],
            rounds=2 * stage.sizes.rounds,
            times=25,
            budget=stage.sizes.peer_budget,
        )
    few, many = found[f"{small}"].median, found[f"{large}"].median
    against.noted(stage, "list", others, found, counted="sessions", ours=many)
    return [
        timing(
            "list",
            f"list 50 of {large:,} sessions against {small:,}",
            ours=many,
            against=("small", few),
            limit=Limit("≤", 1.2),
        )
    ]


def _lister(stage: Stage, stack: ExitStack, count: int) -> Operation:
    store = stack.enter_context(ours.open_store(filled(stage, count)))
    shown = len(store.sessions.find(limit=50).items)
    if shown != 50:
        raise RuntimeError(f"find(limit=50) among {count} sessions gave {shown}")
    return Operation(f"{count}", lambda: store.sessions.find(limit=50))
