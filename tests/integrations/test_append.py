"""Appending to a conversation without a turn."""

from __future__ import annotations

import pytest

from tertulia import NotFound, Store
from tertulia.core.message import INTERNAL
from tertulia.integrations import append
from tests.records.store_inspection import ANA, BEN, log_of

pytestmark = pytest.mark.check


def open_session(store: Store) -> str:
    return store.sessions.open(ANA).id


def append_lines(store: Store, session_id: str, *lines: append.LogLine) -> int:
    now = store.now()
    return store.context.db.write(
        lambda tx: append.append_lines(tx, session_id, lines, now=now, active_at=now)
    )


def test_each_user_message_begins_a_turn(store: Store) -> None:
    session_id = open_session(store)
    lines = [
        append.to_log_line({"role": "user", "content": "one"}),
        append.to_log_line({"role": "assistant", "content": "1"}),
        append.to_log_line({"role": "user", "content": "not said"}, INTERNAL),
        append.to_log_line({"role": "user", "content": "two"}),
    ]
    assert append_lines(store, session_id, *lines) == 4
    rows = log_of(store, session_id)
    assert [(row.turn, row.kind) for row in rows] == [
        (1, None),
        (1, None),
        (1, INTERNAL),
        (2, None),
    ]


def test_a_missing_session_is_not_found(store: Store) -> None:
    line = append.to_log_line({"role": "user", "content": "one"})
    with pytest.raises(NotFound):
        append_lines(store, "20260101_000000_00000000", line)


def test_an_opener_returns_the_current_session_or_a_new_one(store: Store) -> None:
    session_id = open_session(store)
    for source, is_same in ((ANA, True), (BEN, False)):
        opener = append.SessionOpener.prepare(store.context, source, store.sessions.key(source))
        row = store.context.db.write(opener.open)
        assert (row.id == session_id) == is_same
