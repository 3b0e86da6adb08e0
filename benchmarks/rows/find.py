"""Finding the session of a source, with a durable update of its activity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from benchmarks import peer_results, store_under_test
from benchmarks.measure import Contestant, Operation, Samples, calm, interleave, was_disturbed
from benchmarks.raw_sqlite import RawSessions
from benchmarks.report import Limit, Row, milliseconds, timing
from benchmarks.run_context import RunContext


def run(context: RunContext) -> list[Row]:
    others = peer_results.prepare_peers(context, "find", "find", context.sizes.peer_sessions)
    small, _, large = context.sizes.sessions
    all_samples = _measure(context, others)
    samples = calm(all_samples, f"raw {large}")
    disturbed = was_disturbed(all_samples[f"raw {large}"])
    medians = [samples[f"{size}"].median for size in context.sizes.sessions]
    raw = samples[f"raw {large}"].median
    sizes = " / ".join(f"{size:,}" for size in context.sizes.sessions)
    peer_results.add_samples(
        context, "find", others, samples, unit_name="sessions", ours=medians[-1], raw=raw
    )
    return [
        timing(
            "find_growth",
            f"find a session among {large:,} against {small:,}",
            ours=medians[-1],
            against=("small", medians[0]),
            limit=Limit("≤", 1.2),
            note=f"among {sizes}: {' / '.join(map(milliseconds, medians))}; "
            f"one raw commit grew {raw / samples[f'raw {small}'].median:.2f}×",
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


def filled_store(context: RunContext, count: int) -> Path:
    return context.built(f"store of {count:,} sessions", _fill(count))


def _measure(context: RunContext, others: Sequence[Contestant]) -> dict[str, Samples]:
    contestants = list(others)
    with ExitStack() as stack:
        for size in context.sizes.sessions:
            raw = stack.enter_context(closing(RawSessions(context.new_path("raw"), size)))
            contestants += [
                _find_operation(context, stack, size),
                Operation(f"raw {size}", raw.touch),
            ]
        # As in a store that has run for a while: the log is overwritten, not extended.
        for contestant in contestants[len(others) :]:
            contestant.burst(context.sizes.commits_before)
        return interleave(
            contestants,
            rounds=2 * context.sizes.rounds,
            times=25,
            budget=context.sizes.peer_budget,
        )


def _find_operation(context: RunContext, stack: ExitStack, size: int) -> Operation:
    store = stack.enter_context(store_under_test.open_store(filled_store(context, size)))
    store_under_test.check_touch(store, 0)
    pick = store_under_test.random_source(size)
    return Operation(f"{size}", lambda: store.sessions.open(pick()))


def _fill(count: int) -> Callable[[Path], None]:
    return lambda path: store_under_test.fill_sessions(path, count)
