"""The log: appended messages are numbered, and a user's message begins a turn."""

from __future__ import annotations

import pytest
from msgspec import structs

from tertulia import NotFound, Session, Store
from tertulia.core.message import DELIVERY, draft
from tertulia.records import session_rows
from tertulia.records.transcript.log import Entry, add_messages, append_messages, append_with
from tertulia.records.usage import charge
from tertulia.storage.base import Transaction
from tests.records.store_inspection import ANA, log_of

USER = Entry(draft({"role": "user", "content": "hello"}))
ASSISTANT = Entry(draft({"role": "assistant", "content": "hi"}))


@pytest.fixture
def session(store: Store) -> Session:
    return store.sessions.open(ANA)


def test_each_user_message_begins_a_turn(store: Store, session: Session) -> None:
    def work(tx: Transaction) -> int:
        return append_messages(tx, session.id, [ASSISTANT, USER, ASSISTANT, USER], 1)

    assert store.context.db.write(work) == 4
    assert [(row.seq, row.turn, row.role) for row in log_of(store, session)] == [
        (1, 0, "assistant"),
        (2, 1, "user"),
        (3, 1, "assistant"),
        (4, 2, "user"),
    ]


def test_only_user_messages_count_as_activity(store: Store, session: Session) -> None:
    later = 2**51
    db = store.context.db
    db.write(lambda tx: append_messages(tx, session.id, [ASSISTANT], later))
    db.write(lambda tx: append_messages(tx, session.id, [USER], later, is_activity=False))
    assert store.sessions.require(session.id).updated_at == session.updated_at
    db.write(lambda tx: append_messages(tx, session.id, [USER], later))
    assert store.sessions.require(session.id).updated_at > session.updated_at


def test_a_message_may_have_its_own_time_kind_and_turn(store: Store, session: Session) -> None:
    entries = [
        structs.replace(USER, at=1),
        structs.replace(ASSISTANT, kind=DELIVERY),
        structs.replace(ASSISTANT, turn=7),
    ]
    store.context.db.write(lambda tx: append_messages(tx, session.id, entries, 9))
    rows = store.transcript(session.id).entries()
    assert [(row.kind, row.at.microsecond, row.turn) for row in rows] == [
        (None, 1, 1),
        (DELIVERY, 9, 1),
        (None, 9, 7),
    ]


def test_user_message_inside_a_turn_begins_none(store: Store, session: Session) -> None:
    entries = [USER, structs.replace(USER, is_inside_turn=True), USER]
    store.context.db.write(lambda tx: append_messages(tx, session.id, entries, 1))
    assert [row.turn for row in log_of(store, session)] == [1, 1, 2]


def test_time_of_the_activity_may_differ(store: Store, session: Session) -> None:
    store.context.db.write(
        lambda tx: append_messages(
            tx, session.id, [ASSISTANT], 9, is_activity=True, active_at=2**51
        )
    )
    assert store.sessions.require(session.id).updated_at > session.updated_at
    assert store.transcript(session.id).entries()[0].micros == 9


def test_usage_is_stored_in_the_same_call(store: Store, session: Session) -> None:
    from tertulia import Usage

    cost = charge(Usage(5, 3, cost_usd=0.5))
    store.context.db.write(lambda tx: append_messages(tx, session.id, [USER], 1, cost=cost))
    assert store.usage.sum("session")[session.id].input == 5


def test_unknown_session_is_not_found(store: Store) -> None:
    with pytest.raises(NotFound):
        store.context.db.write(lambda tx: append_messages(tx, "nobody", [USER], 1))


def test_added_messages_change_only_the_log(store: Store, session: Session) -> None:
    ref = store.context.db.read(lambda tx: session_rows.require(tx, session.id).ref)
    entries = [
        structs.replace(USER, turn=7, author='{"id":"1"}'),
        structs.replace(ASSISTANT, turn=7),
    ]
    assert store.context.db.write(lambda tx: add_messages(tx, ref, entries, 1)) == 2
    assert [(row.seq, row.turn) for row in log_of(store, session)] == [(1, 7), (2, 7)]
    after = store.sessions.require(session.id)
    assert (after.version, after.updated_at) == (session.version, session.updated_at)
    store.settle()
    assert [hit.seq for hit in store.search("hello").items] == [1]


def test_nothing_is_stored_if_the_condition_of_the_statement_fails(
    store: Store, session: Session
) -> None:
    row = store.context.db.write(
        lambda tx: append_with(tx, "session_add_messages", {"ref": 99}, [USER], 1)
    )
    assert row is None
    assert log_of(store, session) == []
