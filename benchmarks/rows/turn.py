"""One turn: four messages of 400 bytes and the usage in one call, in a session with history."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from benchmarks import peer_results, store_under_test
from benchmarks.corpus import Corpus, Message, endless
from benchmarks.measure import Operation, Samples, Seconds, calm, interleave, timed, was_disturbed
from benchmarks.peers import PeerOperation
from benchmarks.raw_sqlite import RawTurns, encoded
from benchmarks.report import Limit, Row, milliseconds, timing
from benchmarks.rows.newest import long_session
from benchmarks.run_context import RunContext
from benchmarks.store_under_test import Durability

GROWTH = Limit("≤", 1.2)
# The worst of a burst is the noisiest figure; a cost that grows with size grows far more.
STALL = Limit("≤", 1.5)


def run_safe(context: RunContext) -> list[Row]:
    rows = [*_run(context, "turn_safe", "safe", Limit("≤", 1.5)), *_in_long_session(context)]
    return [*rows, _without_pause(context)] if context.sizes.steady_seconds else rows


def run_fast(context: RunContext) -> list[Row]:
    return _run(context, "turn_fast", "fast", Limit("≤", 3))


def _run(context: RunContext, name: str, durability: Durability, limit: Limit) -> list[Row]:
    sizes = context.sizes
    turns = Corpus().turns(500)
    size = f"{sizes.turns_before:,} turns"
    with (
        store_under_test.open_store(context.new_path("turn"), durability) as store,
        closing(RawTurns(context.new_path("raw"), durability)) as raw,
    ):
        writer = store_under_test.Turns(store, turns)
        both = [
            Operation("tertulia", writer.write, store.settle),
            Operation("raw", _raw_turn(raw, turns)),
        ]
        rounds = sizes.turns_before // sizes.burst
        early = interleave(both, rounds=rounds, times=sizes.burst)
        if writer.done < sizes.turns_before:
            raise RuntimeError(f"only {writer.done:,} turns were written before the measurement")
        others = _others(context, name, durability)
        late = interleave(
            [*both, *others],
            rounds=sizes.turns_after // sizes.burst,
            times=sizes.burst,
            budget=sizes.peer_budget,
        )
        store_under_test.check_usage(store, writer.done)
    first = {who: samples.only(range(max(2, rounds // 2))) for who, samples in early.items()}
    quiet = calm(late, "raw")
    mine, raws = quiet["tertulia"], quiet["raw"]
    peer_results.add_samples(
        context, name, others, late, unit_name="turns", ours=mine.median, raw=raws.median
    )
    rows = [
        _cost(name, f"a turn, {durability}, after {size}", limit, mine, raws),
        _stalls(name, first, late, STALL if sizes.judges_stalls else None),
    ]
    disturbed = was_disturbed(early["raw"]) or was_disturbed(late["raw"])
    return [replace(row, disturbed=disturbed) for row in rows]


def _others(context: RunContext, name: str, durability: Durability) -> list[PeerOperation]:
    """Return the other stores; they have one durability, which is compared with the safe one."""
    if durability == "fast":
        return []
    return peer_results.prepare_peers(context, name, "turn", [context.sizes.peer_turns])


def _in_long_session(context: RunContext) -> list[Row]:
    """Measure the same in a session of many messages, against one of few."""
    few, many = context.sizes.messages
    turns = Corpus(3).turns(200)
    with (
        store_under_test.open_store(_copy_session(context, few)) as short,
        store_under_test.open_store(_copy_session(context, many)) as long,
    ):
        samples = interleave(
            [
                Operation("short", store_under_test.Turns(short, turns).write, short.settle),
                Operation("long", store_under_test.Turns(long, turns).write, long.settle),
            ],
            rounds=max(2, context.sizes.rounds // 3),
            times=context.sizes.burst,
        )
    where = f"in a session of {many:,} messages against {few:,}"
    large, small = samples["long"], samples["short"]
    return [
        timing(
            "turn_growth",
            f"a turn, safe, {where}",
            ours=large.median,
            against=("small", small.median),
            limit=GROWTH,
        ),
        timing(
            "turn_growth_stall",
            "the worst turn of a burst, in the same two",
            ours=large.stall,
            against=("small", small.stall),
            limit=STALL if context.sizes.judges_stalls else None,
            note=f"p99 {milliseconds(large.p99)}, in the small one {milliseconds(small.p99)}; "
            f"worst of all {milliseconds(large.worst)} and {milliseconds(small.worst)}",
        ),
    ]


def _without_pause(context: RunContext) -> Row:
    """Measure one caller that never pauses, so that indexing runs while it writes."""
    turns = Corpus(4).turns(500)
    seconds = context.sizes.steady_seconds
    with (
        store_under_test.open_store(context.new_path("steady")) as store,
        closing(RawTurns(context.new_path("raw"), "safe")) as raw,
    ):
        base = Samples(bursts=[_steady(_raw_turn(raw, turns), seconds / 4)])
        writer = store_under_test.Turns(store, turns)
        mine = Samples(bursts=[_steady(writer.write, seconds)])
        store_under_test.check_usage(store, writer.done)
        base.bursts.append(_steady(_raw_turn(raw, turns), seconds / 4))
    return timing(
        "turn_behind",
        f"a turn, safe, {seconds:.0f} s without a pause for the index",
        ours=mine.median,
        against=("raw", base.median),
        note=f"{len(mine.all):,} turns; p99 {milliseconds(mine.p99)}, worst "
        f"{milliseconds(mine.worst)}; raw p99 {milliseconds(base.p99)}, worst "
        f"{milliseconds(base.worst)}",
        numbers=_numbers("ours", mine) | _numbers("raw", base),
        disturbed=was_disturbed(base),
    )


def _steady(write: Callable[[], None], seconds: float) -> list[Seconds]:
    end = time.perf_counter() + seconds
    samples = []
    while time.perf_counter() < end:
        samples += timed(write, 20)
    return samples


def _copy_session(context: RunContext, count: int) -> Path:
    """Return a copy, because the other rows read the session as it was built."""
    return Path(shutil.copy(long_session(context, count), context.new_path("turn")))


def _raw_turn(raw: RawTurns, turns: list[list[Message]]) -> Callable[[], None]:
    turn_iterator = endless([encoded(turn) for turn in turns])
    return lambda: raw.write(0, next(turn_iterator))


def _cost(name: str, what: str, limit: Limit, mine: Samples, raws: Samples) -> Row:
    sustained = f"{milliseconds(mine.sustained)} a turn, {mine.sustained / raws.sustained:.2f}× raw"
    return timing(
        name,
        what,
        ours=mine.median,
        against=("raw", raws.median),
        limit=limit,
        note=f"p99 {milliseconds(mine.p99)}, raw {milliseconds(raws.p99)}; "
        f"with the search index caught up after every burst {sustained}",
        numbers=_numbers("late", mine) | _numbers("raw_late", raws),
    )


def _stalls(
    name: str, early: dict[str, Samples], late: dict[str, Samples], limit: Limit | None
) -> Row:
    first, last = early["tertulia"], late["tertulia"]
    raw_growth = late["raw"].stall / early["raw"].stall
    worst = max(first.worst, last.worst)
    raw_worst = max(early["raw"].worst, late["raw"].worst)
    return timing(
        f"{name}_stall",
        "the worst turn of a burst, late against early",
        ours=last.stall,
        against=("early", first.stall),
        limit=limit,
        note=f"p99 early {milliseconds(first.p99)}, late {milliseconds(last.p99)}; "
        f"worst of all {milliseconds(worst)}, of raw {milliseconds(raw_worst)}; raw's stalls "
        f"grew {raw_growth:.2f}×; the very first turn took {milliseconds(first.first)}",
        numbers=_numbers("early", first) | {"first_ever_ms": first.first * 1000},
    )


def _numbers(when: str, samples: Samples) -> dict[str, float]:
    times = {"p99": samples.p99, "worst": samples.worst, "sustained": samples.sustained}
    return {f"{when}_{name}_ms": seconds * 1000 for name, seconds in times.items()}
