"""Many callers at once, each with 16 sessions of its own, all safe."""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace

from benchmarks import against, ours
from benchmarks.corpus import Corpus, Message
from benchmarks.peers import PeerError
from benchmarks.raw import RawTurns, encoded
from benchmarks.report import Limit, Row
from benchmarks.stage import Stage
from tertulia import Store

SESSIONS = 16
# Setting the others up takes long, so they are not in every round.
PEER_ROUNDS = 2
LEAST = {8: 1.5, 32: 2.0}

# Does the turn with that number in the session with that number.
Write = Callable[[int, int], object]


def run(stage: Stage) -> list[Row]:
    sizes = stage.sizes
    turns = Corpus().turns(50)
    most = max(sizes.callers) * SESSIONS
    rates: dict[str, list[float]] = defaultdict(list)
    with (
        ours.open_store(stage.new_path("callers")) as store,
        closing(RawTurns(stage.new_path("raw"), "safe", most)) as raw,
    ):
        alone, in_one_commit = _raw_writer(raw, turns), Writer(store, turns, most)
        for number in range(sizes.caller_rounds):
            rates["raw"].append(rate(alone, 1, sizes.caller_seconds))
            for callers in sizes.callers:
                rates[f"{callers}"].append(rate(in_one_commit.write, callers, sizes.caller_seconds))
                store.settle()
            if number < PEER_ROUNDS:
                _ask_others(stage, rates)
        ours.check_usage(store, in_one_commit.done)
    found = _medians(rates)
    _note_others(stage, found)
    disturbed = min(rates["raw"]) < max(rates["raw"]) / 1.5
    rows = [_row(callers, found[f"{callers}"], found["raw"]) for callers in sizes.callers]
    return [replace(row, disturbed=disturbed) for row in rows]


def _medians(rates: dict[str, list[float]]) -> dict[str, float]:
    """Over the rounds in which raw was not kept from its work by something else."""
    best = max(rates["raw"])
    calm = [number for number, raw in enumerate(rates["raw"]) if raw >= best / 1.5]
    return {
        who: statistics.median([found[number] for number in calm if number < len(found)] or found)
        for who, found in rates.items()
    }


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


class Writer:
    """Turns in any of many sessions, counted."""

    def __init__(self, store: Store, turns: Sequence[list[Message]], sessions: int) -> None:
        self._turns = turns
        self._transcripts = [
            store.transcript(store.sessions.open(ours.source(number)).id)
            for number in range(sessions)
        ]
        self._written: deque[None] = deque()  # appending is safe among threads, adding is not

    def write(self, session: int, turn: int) -> None:
        messages = self._turns[turn % len(self._turns)]
        self._transcripts[session].extend(messages, usage=ours.USAGE)
        self._written.append(None)

    @property
    def done(self) -> int:
        return len(self._written)


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


def _ask_others(stage: Stage, rates: dict[str, list[float]]) -> None:
    for peer in stage.peers:
        try:
            rates[peer.name].append(
                peer.figure(
                    "callers",
                    callers=min(stage.sizes.callers),
                    sessions=SESSIONS,
                    seconds=stage.sizes.caller_seconds,
                )
            )
        except PeerError as problem:
            against.refused(stage, "callers", peer, problem)


def _note_others(stage: Stage, found: dict[str, float]) -> None:
    callers = min(stage.sizes.callers)
    for peer in stage.peers:
        if peer.name in found:
            against.note(
                stage,
                "callers",
                peer,
                found[peer.name],
                size=f"{callers} callers",
                ours=found[f"{callers}"],
                raw=found["raw"],
                unit="turns/s",
            )
