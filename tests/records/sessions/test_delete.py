"""Deleting a session: forks keep the messages that they show."""

from __future__ import annotations

from typing import Any

import pytest

from tertulia import NotFound, Store, Usage
from tertulia.core.history.view import Span
from tertulia.records.sessions.delete import _merge
from tests.records.store_inspection import ANA, execute


def turn(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}, {"role": "assistant", "content": f"re {text}"}]


def test_a_fork_keeps_its_messages_when_its_parent_is_deleted(store: Store) -> None:
    parent = store.sessions.open(ANA)
    store.transcript(parent.id).extend([*turn("a"), *turn("b")])
    fork = store.sessions.fork(parent.id, at=2)
    transcript = store.transcript(fork.id)
    transcript.extend(turn("c"))
    transcript.undo()
    store.sessions.delete(parent.id)
    assert transcript.load() == turn("a")
    assert transcript.redo()
    assert transcript.load() == [*turn("a"), *turn("c")]
    assert store.sessions.get(parent.id) is None


def test_nothing_but_usage_is_left(store: Store) -> None:
    session = store.sessions.open(ANA)
    store.transcript(session.id).extend(turn("a" * 100_000), Usage(5))
    store.sessions.delete(session.id)
    for table in ("messages", "message_blobs", "blobs", "revisions", "events", "turns"):
        assert execute(store, f"select count(*) from {table}")[0][0] == 0, table
    assert store.usage.sum("day")
    with pytest.raises(NotFound):
        store.transcript(session.id).load()


def test_merged_spans_do_not_overlap() -> None:
    spans = [Span(1, 4, 6), Span(1, 1, 2), Span(1, 3, 3), Span(1, 9, 9), Span(1, 5, 7)]
    assert _merge(spans) == [Span(1, 1, 7), Span(1, 9, 9)]
