"""Many callers at once, each with its own 16 sessions, all with safe durability."""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace

from benchmarks import peer_results, store_under_test
from benchmarks.corpus import Corpus, Message
from benchmarks.peers import PeerError
from benchmarks.raw_sqlite import RawTurns, encoded
from benchmarks.report import Limit, Row
from benchmarks.run_context import RunContext
from tertulia import Store

SESSIONS = 16
# Preparing the other stores takes long, so they are not in every round.
PEER_ROUNDS = 2
MINIMUM_RATIO = {8: 1.5, 32: 2.0}

# Writes a turn, by its number, to a session, by its number.
Write = Callable[[int, int], object]


def run(context: RunContext) -> list[Row]:
    sizes = context.sizes
    turns = Corpus().turns(50)
    session_count = max(sizes.callers) * SESSIONS
    rates: dict[str, list[float]] = defaultdict(list)
    with (
        store_under_test.open_store(context.new_path("callers")) as store,
        closing(RawTurns(context.new_path("raw"), "safe", session_count)) as raw,
    ):
        raw_write, store_writer = _raw_writer(raw, turns), Writer(store, turns, session_count)
        for number in range(sizes.caller_rounds):
            rates["raw"].append(rate(raw_write, 1, sizes.caller_seconds))
            for callers in sizes.callers:
                rates[f"{callers}"].append(rate(store_writer.write, callers, sizes.caller_seconds))
                store.settle()
            if number < PEER_ROUNDS:
                _measure_peers(context, rates)
        store_under_test.check_usage(store, store_writer.done)
    medians = _medians(rates)
    _add_peer_rows(context, medians)
    disturbed = min(rates["raw"]) < max(rates["raw"]) / 1.5
    rows = [_row(callers, medians[f"{callers}"], medians["raw"]) for callers in sizes.callers]
    return [replace(row, disturbed=disturbed) for row in rows]


def _medians(rates: dict[str, list[float]]) -> dict[str, float]:
    """Return medians over the rounds in which raw was not disturbed by other work."""
    best = max(rates["raw"])
    calm = [number for number, raw in enumerate(rates["raw"]) if raw >= best / 1.5]
    return {
        name: statistics.median(
            [values[number] for number in calm if number < len(values)] or values
        )
        for name, values in rates.items()
    }


def rate(write: Write, callers: int, seconds: float) -> float:
    """Return the turns per second of `callers` threads."""
    counts = [0] * callers
    end = time.perf_counter() + seconds

    def caller(number: int) -> None:
        own = itertools.cycle(range(number * SESSIONS, (number + 1) * SESSIONS))
        while time.perf_counter() < end:
            write(next(own), counts[number])
            counts[number] += 1

    start = time.perf_counter()
    _run_threads(caller, callers)
    return sum(counts) / (time.perf_counter() - start)


def _run_threads(caller: Callable[[int], None], callers: int) -> None:
    if callers == 1:
        caller(0)
        return
    threads = [threading.Thread(target=caller, args=(number,)) for number in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Writer:
    """A writer of turns to many sessions that counts them."""

    def __init__(self, store: Store, turns: Sequence[list[Message]], sessions: int) -> None:
        self._turns = turns
        self._transcripts = [
            store.transcript(store.sessions.open(store_under_test.source(number)).id)
            for number in range(sessions)
        ]
        self._written: deque[None] = deque()  # appending is thread-safe, adding is not

    def write(self, session: int, turn: int) -> None:
        messages = self._turns[turn % len(self._turns)]
        self._transcripts[session].extend(messages, usage=store_under_test.USAGE)
        self._written.append(None)

    @property
    def done(self) -> int:
        return len(self._written)


def _raw_writer(raw: RawTurns, turns: Sequence[list[Message]]) -> Write:
    ready = [encoded(turn) for turn in turns]
    return lambda session, turn: raw.write(session, ready[turn % len(ready)])


def _row(callers: int, turn_rate: float, base: float) -> Row:
    return Row(
        f"callers_{callers}",
        f"{callers} callers, {SESSIONS} sessions each, safe",
        turn_rate / base,
        Limit("≥", MINIMUM_RATIO[callers]),
        ours=f"{turn_rate:,.0f} turns/s",
        against=f"raw alone {base:,.0f} turns/s",
        numbers={"turns_per_second": turn_rate, "raw_turns_per_second": base},
    )


def _measure_peers(context: RunContext, rates: dict[str, list[float]]) -> None:
    for peer in context.peers:
        try:
            rates[peer.name].append(
                peer.figure(
                    "callers",
                    callers=min(context.sizes.callers),
                    sessions=SESSIONS,
                    seconds=context.sizes.caller_seconds,
                )
            )
        except PeerError as problem:
            peer_results.add_problem(context, "callers", peer, problem)


def _add_peer_rows(context: RunContext, medians: dict[str, float]) -> None:
    callers = min(context.sizes.callers)
    for peer in context.peers:
        if peer.name in medians:
            peer_results.add_row(
                context,
                "callers",
                peer,
                medians[peer.name],
                size=f"{callers} callers",
                ours=medians[f"{callers}"],
                raw=medians["raw"],
                unit="turns/s",
            )
