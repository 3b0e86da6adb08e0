"""A claim takes no more than asked, however PostgreSQL plans it.

A table that was empty when its statistics were collected is read row by row, and the inner query
of a claim would be run again for each of its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import psycopg
import pytest

import tertulia
from tertulia import Settings, Source, Store
from tertulia.testing import FakeClock
from tests.servers.postgres import Server

ENTRIES = 5


def fill_outbox(store: Store, clock: FakeClock) -> None:
    for number in range(ENTRIES):
        store.outbox.put("text", f"telegram:{number}")


def fill_schedule_runs(store: Store, clock: FakeClock) -> None:
    for number in range(ENTRIES):
        person = Source("telegram", str(number), user_id=str(number))
        store.schedules.run_now(store.schedules.create(person, "every 2h", "look").id)


def fill_memory_flushes(store: Store, clock: FakeClock) -> None:
    sessions = []
    for number in range(ENTRIES):
        with store.turn(Source("telegram", str(number), user_id=str(number)), "hi") as turn:
            turn.add_assistant("hello")
        sessions.append(turn.session.id)
    clock.forward(days=3)
    for session_id in sessions:
        store.sessions.expire(session_id)


@pytest.mark.parametrize(
    ("table", "fill", "claim"),
    [
        ("outbox", fill_outbox, lambda store: store.outbox.claim(limit=2)),
        ("occurrences", fill_schedule_runs, lambda store: store.schedules.claim(limit=2)),
        ("flushes", fill_memory_flushes, lambda store: store.memory_flushes.claim(limit=2)),
    ],
    ids=["deliveries", "schedule runs", "memory flushes"],
)
def test_claim_on_postgres_takes_no_more_than_asked(
    postgres: Server,
    table: str,
    fill: Callable[[Store, FakeClock], None],
    claim: Callable[[Store], Sequence[object]],
) -> None:
    clock = FakeClock()
    with (
        postgres.empty_store() as place,
        tertulia.open(place, settings=Settings(zone="UTC", remember=True), clock=clock) as store,
    ):
        fill(store, clock)
        with psycopg.connect(place, autocommit=True) as connection:
            connection.execute(f"delete from {table}".encode())
            connection.execute(f"analyze {table}".encode())
        fill(store, clock)
        assert len(claim(store)) == 2
