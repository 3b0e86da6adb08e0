"""Reading: spans in order, and no more messages for a history than its budget can need."""

from __future__ import annotations

from typing import Any

import pytest

from tertulia import Session, Store
from tertulia.core.history.view import Span
from tertulia.core.history.window import HistoryBudget
from tertulia.records import session_rows
from tertulia.records.transcript.read import (
    RecentMessages,
    read_bodies,
    read_messages,
    read_recent,
    read_summary,
)
from tests.records.store_inspection import ANA


def turn(number: int) -> list[dict[str, Any]]:
    return [
        {"role": "user", "content": f"question {number}"},
        {"role": "assistant", "content": f"answer {number}"},
    ]


@pytest.fixture
def session(store: Store) -> Session:
    session = store.sessions.open(ANA)
    store.transcript(session.id).extend([body for n in range(100) for body in turn(n)])
    return session


def recent(store: Store, session: Session, budget: HistoryBudget) -> RecentMessages:
    return store.context.db.read(lambda tx: read_recent(tx, session.id, budget))


def test_spans_are_read_in_their_order(store: Store, session: Session) -> None:
    db = store.context.db
    ref = db.read(lambda tx: session_rows.require(tx, session.id)).ref
    spans = [Span(ref, 5, 6), Span(ref, 1, 2)]
    messages = db.read(lambda tx: read_messages(tx, spans))
    assert [message.seq for message in messages] == [5, 6, 1, 2]
    assert [message.turn for message in messages] == [3, 3, 1, 1]
    assert db.read(lambda tx: read_bodies(tx, spans)) == [*turn(2), *turn(0)]


def test_a_budget_of_messages_reads_a_few_more_than_it_takes(
    store: Store, session: Session
) -> None:
    part = recent(store, session, HistoryBudget(10, None))
    assert not part.is_whole
    assert 10 < len(part.messages) < 20
    assert part.messages[-1].seq == 200


def test_a_budget_of_tokens_reads_until_it_is_exceeded(store: Store, session: Session) -> None:
    small = recent(store, session, HistoryBudget(500, 50))
    large = recent(store, session, HistoryBudget(500, 100_000))
    assert len(small.messages) < 100
    assert not small.is_whole
    assert len(large.messages) == 200
    assert large.is_whole


def test_the_last_user_message_is_read_even_if_it_is_far_back(store: Store) -> None:
    session = store.sessions.open(ANA)
    transcript = store.transcript(session.id)
    transcript.append({"role": "user", "content": "the question"})
    transcript.extend([{"role": "assistant", "content": f"step {n}"} for n in range(50)])
    part = recent(store, session, HistoryBudget(3, None))
    assert part.messages[0].body["content"] == "the question"
    assert part.messages[-1].body["content"] == "step 49"
    assert not part.is_whole


def test_the_summary_is_read_after_a_compaction(store: Store, session: Session) -> None:
    def summary() -> str | None:
        current = store.context.db.read(lambda tx: session_rows.current_view(tx, session.id))
        message = store.context.db.read(lambda tx: read_summary(tx, current))
        return None if message is None else str(message.body["content"])

    assert summary() is None
    store.transcript(session.id).compact(lambda messages, previous: "they talked")
    assert summary() == "they talked"
