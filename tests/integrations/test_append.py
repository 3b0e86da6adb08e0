"""Appending to a conversation without a turn."""

from __future__ import annotations

import pytest

from tertulia import NotFound, Store
from tertulia.core.message import INTERNAL
from tertulia.integrations import append
from tertulia.records.transcript.log import Entry, append_messages
from tests.records.store_inspection import ANA, log_of


def open_session(store: Store) -> str:
    return store.sessions.open(ANA).id


def append_entries(store: Store, session_id: str, *entries: Entry) -> int:
    return store.context.db.write(lambda tx: append_messages(tx, session_id, entries, 1))


def test_each_user_message_begins_a_turn(store: Store) -> None:
    session_id = open_session(store)
    entries = [
        append.to_entry({"role": "user", "content": "one"}),
        append.to_entry({"role": "assistant", "content": "1"}),
        append.to_entry({"role": "user", "content": "not said"}, INTERNAL),
        append.to_entry({"role": "user", "content": "two"}),
    ]
    assert append_entries(store, session_id, *entries) == 4
    rows = log_of(store, session_id)
    assert [(row.turn, row.kind) for row in rows] == [
        (1, None),
        (1, None),
        (1, INTERNAL),
        (2, None),
    ]


def test_a_missing_session_is_not_found(store: Store) -> None:
    entry = append.to_entry({"role": "user", "content": "one"})
    with pytest.raises(NotFound):
        append_entries(store, "20260101_000000_00000000", entry)


def test_a_mark_finds_its_message_until_it_is_deleted(store: Store) -> None:
    session_id = open_session(store)
    mark = append.make_mark("sdk", "entry 1")
    append_entries(store, session_id, append.to_entry({"role": "user"}, None, (mark,)))
    db = store.context.db
    assert db.read(lambda tx: append.is_stored(tx, mark))
    ((_, seq),) = db.read(lambda tx: append.find_positions(tx, mark))
    assert seq == 1
    store.sessions.delete(session_id)
    assert not db.read(lambda tx: append.is_stored(tx, mark))


def test_different_parts_give_different_marks() -> None:
    assert append.make_mark("a", "bc") != append.make_mark("ab", "c")
    assert append.make_mark("a", "b") == append.make_mark("a", "b")


def test_ended_sessions_are_found_on_request(store: Store) -> None:
    first = open_session(store)
    second = store.sessions.open(ANA, force_new=True).id
    key = store.sessions.key(ANA)

    def ids(ended: bool) -> set[str]:
        return store.context.db.read(
            lambda tx: {row.id for row in append.find_sessions(tx, key=key, ended=ended)}
        )

    assert ids(ended=False) == {second}
    assert ids(ended=True) == {first, second}
