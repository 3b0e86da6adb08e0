"""Many callers at once, each with 16 sessions of its own, all safe."""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing

from benchmarks import against, ours
from benchmarks.corpus import Corpus, Message
from benchmarks.peers import Peer
from benchmarks.raw import RawTurns, encoded
from benchmarks.report import Limit, PeerRow, Row
from benchmarks.stage import Stage
from tertulia import Store

SESSIONS = 16
LEAST = {8: 1.5, 32: 2.0}

# Does the turn with that number in the session with that number.
Write = Callable[[int, int], object]


def run(stage: Stage) -> list[Row]:
    sizes = stage.sizes
    turns = Corpus().turns(50)
    most = max(sizes.callers) * SESSIONS
    rates: dict[int, list[float]] = {callers: [] for callers in (0, *sizes.callers)}
    with (
        ours.open_store(stage.new_path("callers")) as store,
        closing(RawTurns(stage.new_path("raw"), "safe", most)) as raw,
    ):
        alone, together = _raw_writer(raw, turns), _writer(store, turns, most)
        for _ in range(sizes.caller_rounds):
            rates[0].append(rate(alone, 1, sizes.caller_seconds))
            for callers in sizes.callers:
                rates[callers].append(rate(together, callers, sizes.caller_seconds))
                store.settle()
    base = statistics.median(rates[0])
    found = {callers: statistics.median(rates[callers]) for callers in sizes.callers}
    against.figures(stage, "callers", _asked(stage, found, base))
    return [_row(callers, found[callers], base) for callers in sizes.callers]


def rate(write: Write, callers: int, seconds: float) -> float:
    """Turns per second of that many threads."""
    counts = [0] * callers
    end = time.perf_counter() + seconds

    def caller(number: int) -> None:
        own = itertools.cycle(range(number * SESSIONS, (number + 1) * SESSIONS))
        while time.perf_counter() < end:
            write(next(own), counts[number])
            counts[number] += 1

    start = time.perf_counter()
    _all_at_once(caller, callers)
    return sum(counts) / (time.perf_counter() - start)


def _all_at_once(caller: Callable[[int], None], callers: int) -> None:
    if callers == 1:
        caller(0)
        return
    threads = [threading.Thread(target=caller, args=(number,)) for number in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _writer(store: Store, turns: Sequence[list[Message]], sessions: int) -> Write:
    transcripts = [
        store.transcript(store.sessions.open(ours.source(number)).id) for number in range(sessions)
    ]

    def write(session: int, turn: int) -> None:
        transcripts[session].extend(turns[turn % len(turns)], usage=ours.USAGE)

    return write


def _raw_writer(raw: RawTurns, turns: Sequence[list[Message]]) -> Write:
    ready = [encoded(turn) for turn in turns]
    return lambda session, turn: raw.write(session, ready[turn % len(ready)])


def _row(callers: int, found: float, base: float) -> Row:
    return Row(
        f"callers_{callers}",
        f"{callers} callers, {SESSIONS} sessions each, safe",
        found / base,
        Limit("≥", LEAST[callers]),
        ours=f"{found:,.0f} turns/s",
        against=f"raw alone {base:,.0f} turns/s",
        numbers={"turns_per_second": found, "raw_turns_per_second": base},
    )


def _asked(stage: Stage, found: dict[int, float], base: float) -> Callable[[Peer], PeerRow]:
    callers = min(stage.sizes.callers)

    def ask(peer: Peer) -> PeerRow:
        arguments = {
            "callers": callers,
            "sessions": SESSIONS,
            "seconds": stage.sizes.caller_seconds,
        }
        theirs = float(peer.ask("figure", "callers", arguments=arguments))
        return PeerRow(
            "callers",
            peer.name,
            size=f"{callers} callers",
            value=theirs,
            unit="turns/s",
            against_raw=theirs / base,
            against_ours=theirs / found[callers],
        )

    return ask
