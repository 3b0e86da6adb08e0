"""Locks are waited for in one order, so that no two transactions wait for each other."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from psycopg import errors

from tertulia import Source, Store
from tertulia.records import cross_posts
from tertulia.storage.base import Transaction
from tertulia.storage.postgres.database import PostgresDatabase
from tertulia.storage.postgres.transaction import lock_id
from tertulia.testing.fixtures import run_in_threads, texts
from tests.storage.postgres.server_stores import opened

ANA, BEN = (Source("telegram", name, user_id=name) for name in ("ana", "ben"))
# Names in the order of their locks.
FIRST, SECOND = sorted(("one", "two"), key=lock_id)


@pytest.fixture
def refusals(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """The deadlocks that a server has resolved by refusing a transaction."""
    refusals: list[BaseException] = []
    write_once = PostgresDatabase._write_once

    def watched(self: PostgresDatabase, *rest: Any, **options: Any) -> Any:
        try:
            return write_once(self, *rest, **options)
        except errors.DeadlockDetected as problem:
            refusals.append(problem)
            raise

    monkeypatch.setattr(PostgresDatabase, "_write_once", watched)
    return refusals


def test_conversations_that_deliver_into_each_other_do_not_deadlock(
    address: str, monkeypatch: pytest.MonkeyPatch, refusals: list[BaseException]
) -> None:
    target_source = cross_posts.target_source
    meeting = threading.Barrier(2, timeout=60)
    is_first = threading.local()

    def meet(*rest: Any) -> Source:
        if not hasattr(is_first, "over"):
            is_first.over = True
            meeting.wait()  # each has its own lane now, and wants that of the other
        return target_source(*rest)

    def deliver(store: Store, source: Source, target: Source) -> None:
        with store.turn(source, "hello", message_id="2") as turn:
            turn.add_assistant("to you", deliver=f"telegram:{target.chat_id}")

    with opened(address) as store:
        for source in (ANA, BEN):
            with store.turn(source, "hello", message_id="1") as turn:
                turn.add_assistant("hi")
        monkeypatch.setattr(cross_posts, "target_source", meet)
        run_in_threads(
            lambda: deliver(store, ANA, BEN),
            lambda: deliver(store, BEN, ANA),
        )
        for source in (ANA, BEN):
            session = store.sessions.open(source)
            assert texts(store.transcript(session.id)).count("to you") == 2
        assert store.check() == []
    assert refusals == []


def test_lock_that_is_free_is_taken_out_of_order(address: str) -> None:
    runs: list[int] = []

    def work(tx: Transaction) -> None:
        runs.append(1)
        tx.lock(SECOND)
        tx.lock(FIRST)
        tx.lock(FIRST)

    with opened(address) as store:
        store.context.db.write(work)
    assert runs == [1]


def test_work_begins_again_if_a_lock_out_of_order_is_taken(
    address: str, refusals: list[BaseException]
) -> None:
    has_first, wants_second = threading.Event(), threading.Event()
    runs: list[str] = []

    def up(tx: Transaction) -> None:
        tx.lock(FIRST)
        tx.one("db_now")  # the lock is sent together with the next question
        has_first.set()
        assert wants_second.wait(60)
        tx.lock(SECOND)
        runs.append("up")

    def down(tx: Transaction) -> None:
        assert has_first.wait(60)
        tx.lock(SECOND)
        tx.one("db_now")
        wants_second.set()
        runs.append("down")
        tx.lock(FIRST)
        runs.append("both")

    with opened(address) as store:
        db = store.context.db
        run_in_threads(lambda: db.write(up, lane=FIRST), lambda: db.write(down, lane=SECOND))
    assert refusals == []
    assert runs.count("up") == 1
    assert runs[-1] == "both"
    assert runs.count("both") == 1
