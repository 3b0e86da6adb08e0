"""The 50 sessions with the newest activity."""

from __future__ import annotations

from contextlib import ExitStack, closing

from benchmarks import peer_results, store_under_test
from benchmarks.measure import Operation, interleave
from benchmarks.raw_sqlite import RawList
from benchmarks.report import Limit, Row, timing
from benchmarks.rows.find import filled_store
from benchmarks.run_context import RunContext


def run(context: RunContext) -> list[Row]:
    small, _, large = context.sizes.sessions
    others = peer_results.prepare_peers(context, "list", "list", context.sizes.peer_sessions)
    with ExitStack() as stack:
        raw = RawList(filled_store(context, large))
        stack.enter_context(closing(raw))
        if len(raw.newest()) != 50:
            raise RuntimeError("raw did not return 50 sessions")
        samples = interleave(
            [
                _list_operation(context, stack, small),
                _list_operation(context, stack, large),
                Operation("raw", raw.newest),
                *others,
            ],
            rounds=2 * context.sizes.rounds,
            times=25,
            budget=context.sizes.peer_budget,
        )
    few, many = samples[f"{small}"].median, samples[f"{large}"].median
    base = samples["raw"].median
    peer_results.add_samples(
        context, "list", others, samples, unit_name="sessions", ours=many, raw=base
    )
    return [
        timing(
            "list",
            f"list 50 of {large:,} sessions against {small:,}",
            ours=many,
            against=("small", few),
            limit=Limit("≤", 1.2),
        ),
        timing(
            "list_raw",
            f"list 50 of {large:,} sessions",
            ours=many,
            against=("raw", base),
            limit=Limit("≤", 3),
        ),
    ]


def _list_operation(context: RunContext, stack: ExitStack, count: int) -> Operation:
    store = stack.enter_context(store_under_test.open_store(filled_store(context, count)))
    listed = len(store.sessions.find(limit=50).items)
    if listed != 50:
        raise RuntimeError(f"find(limit=50) among {count} sessions returned {listed}")
    return Operation(f"{count}", lambda: store.sessions.find(limit=50))
