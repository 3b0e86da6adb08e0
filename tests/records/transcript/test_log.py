"""The log: appended messages are numbered, and a user's message begins a turn."""

from __future__ import annotations

import pytest

from tertulia import NotFound, Session, Store
from tertulia.core.message import DELIVERY, draft
from tertulia.records.transcript.log import append_messages, insert_messages
from tertulia.records.usage import charge
from tertulia.storage.base import Transaction
from tests.records.store_inspection import ANA, log_of

USER = draft({"role": "user", "content": "hello"})
ASSISTANT = draft({"role": "assistant", "content": "hi"})


@pytest.fixture
def session(store: Store) -> Session:
    return store.sessions.open(ANA)


def test_each_user_message_begins_a_turn(store: Store, session: Session) -> None:
    def work(tx: Transaction) -> int:
        return append_messages(tx, session.id, [ASSISTANT, USER, ASSISTANT, USER], None, 1)

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
    db.write(lambda tx: append_messages(tx, session.id, [ASSISTANT], None, later))
    db.write(lambda tx: append_messages(tx, session.id, [USER], None, later, is_activity=False))
    assert store.sessions.require(session.id).updated_at == session.updated_at
    db.write(lambda tx: append_messages(tx, session.id, [USER], None, later))
    assert store.sessions.require(session.id).updated_at > session.updated_at


def test_each_message_has_its_own_time_and_kind(store: Store, session: Session) -> None:
    store.context.db.write(
        lambda tx: append_messages(
            tx, session.id, [USER, ASSISTANT], None, 9, times=[1, 2], kinds=[None, DELIVERY]
        )
    )
    entries = store.transcript(session.id).entries()
    assert [(entry.kind, entry.at.microsecond) for entry in entries] == [(None, 1), (DELIVERY, 2)]


def test_usage_is_stored_in_the_same_call(store: Store, session: Session) -> None:
    from tertulia import Usage

    cost = charge(Usage(5, 3, cost_usd=0.5))
    store.context.db.write(lambda tx: append_messages(tx, session.id, [USER], cost, 1))
    assert store.usage.sum("session")[session.id].input == 5


def test_unknown_session_is_not_found(store: Store) -> None:
    with pytest.raises(NotFound):
        store.context.db.write(lambda tx: append_messages(tx, "nobody", [USER], None, 1))


def test_inserted_messages_end_at_the_given_number(store: Store, session: Session) -> None:
    def work(tx: Transaction) -> None:
        row = tx.one("session_by_id", {"id": session.id})
        assert row is not None
        tx.run("session_add_messages", {"ref": row[0], "count": 2})
        insert_messages(tx, row[0], 2, [USER, ASSISTANT], 1, turns=[7, 7], author='{"id":"1"}')

    store.context.db.write(work)
    assert [(row.seq, row.turn) for row in log_of(store, session)] == [(1, 7), (2, 7)]
