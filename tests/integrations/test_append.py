"""Appending to a conversation without a turn."""

from __future__ import annotations

import pytest

from tertulia import NotFound, Store
from tertulia.core.message import INTERNAL
from tertulia.integrations import append
from tertulia.records.transcript.log import Entry, append_messages
from tests.records.store_inspection import ANA, log_of

pytestmark = pytest.mark.check


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
