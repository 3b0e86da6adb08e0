"""The store under test, through its public API only."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal

import tertulia
from benchmarks.corpus import Corpus, Message, endless
from tertulia import Settings, Source, Store, Usage

Durability = Literal["safe", "fast"]

USAGE = Usage(input=812, output=64, model="gpt-5-mini")

# The number of turns and of new sessions in one transaction, for bulk writes of test data.
TURNS_AT_ONCE = 100
SESSIONS_AT_ONCE = 500


def open_store(path: Path, durability: Durability = "safe") -> Store:
    return tertulia.open(str(path), settings=Settings(durability=durability))


def source(number: int) -> Source:
    return Source("telegram", str(100_000 + number), user_id=str(number), user_name="Ada")


def random_source(count: int) -> Callable[[], Source]:
    """Return a function that returns existing sources in an order no page cache can predict."""
    order = list(range(count))
    random.Random(count).shuffle(order)
    pick = itertools.cycle([source(number) for number in order[:5_000]])
    return lambda: next(pick)


class Turns:
    """A writer of turns to one session: four messages and the usage in one call."""

    def __init__(self, store: Store, turns: list[list[Message]]) -> None:
        self._transcript = store.transcript(store.sessions.open(source(0)).id)
        self._ahead = endless(turns)
        self.done = 0

    def write(self) -> None:
        self._transcript.extend(next(self._ahead), usage=USAGE)
        self.done += 1


def check_usage(store: Store, turns: int) -> None:
    """Raise if the usage of a turn is missing: skipped work would give good times."""
    recorded = sum(usage.input for usage in store.usage.sum(by="model").values()) // USAGE.input
    if recorded != turns:
        raise RuntimeError(f"{turns:,} turns were written, the usage of {recorded:,} is stored")


def check_touch(store: Store, number: int) -> None:
    """Raise if finding a session does not store a new activity time."""
    session = store.sessions.open(source(number))
    store.sessions.open(source(number))
    stored = store.sessions.require(session.id)
    if stored.updated_at <= session.updated_at:
        raise RuntimeError("opening an existing session did not touch its activity")


def fill_sessions(path: Path, count: int) -> None:
    with open_store(path, "fast") as store:

        def open_sessions(first: int) -> None:
            for number in range(first, min(first + SESSIONS_AT_ONCE, count)):
                store.sessions.open(source(number))

        for first in range(0, count, SESSIONS_AT_ONCE):
            store.in_one_commit(lambda first=first: open_sessions(first))  # type: ignore[misc]
        store.settle()


def fill_session(path: Path, messages: int, rare: int = 0) -> None:
    """Write one session with `messages` messages."""
    with open_store(path, "fast") as store:
        _write(store, 0, Corpus().session_turns(messages, rare))
        store.settle()


def fill_many_sessions(path: Path, messages: int, sessions: int, rare: int = 0) -> None:
    """Write the same messages, spread evenly over many sessions."""
    turns = list(Corpus().session_turns(messages, rare))
    share = max(1, len(turns) // sessions)
    with open_store(path, "fast") as store:
        for number in range(sessions):
            _write(store, number, turns[number * share : (number + 1) * share])
        store.settle()


def _write(store: Store, number: int, turns: Iterable[list[Message]]) -> None:
    transcript = store.transcript(store.sessions.open(source(number)).id)
    for batch in _batches(turns):
        transcript.extend([message for turn in batch for message in turn])


def _batches(turns: Iterable[list[Message]]) -> Iterator[list[list[Message]]]:
    turn_iterator = iter(turns)
    while batch := list(itertools.islice(turn_iterator, TURNS_AT_ONCE)):
        yield batch
