"""Reading: spans in order, and no more messages for a history than its budget can need."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import tertulia
from tertulia import Session, Source, Store
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
from tertulia.records.transcript.transcript import Transcript
from tertulia.storage.base import Transaction
from tests.records.store_inspection import ANA, BEN, FAST
from tests.servers.postgres import Server


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
    def work(tx: Transaction) -> RecentMessages:
        return read_recent(tx, session_rows.current_view(tx, session.id), budget)

    return store.context.db.read(work)


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


# -- on PostgreSQL the view and the newest messages are read together


def _talk(store: Store, source: Source, turns: int) -> Transcript:
    for number in range(turns):
        with store.turn(source, f"question {source.chat_id}-{number}") as turn:
            turn.add_assistant(f"answer {source.chat_id}-{number}")
    return store.transcript(turn.session.id)


def _undo(_: Store, transcript: Transcript) -> Transcript:
    transcript.undo(2)
    return transcript


def _undo_and_go_on(_: Store, transcript: Transcript) -> Transcript:
    transcript.undo(3)
    transcript.append({"role": "user", "content": "again"})
    return transcript


def _fork(store: Store, transcript: Transcript) -> Transcript:
    fork = store.transcript(store.sessions.fork(transcript.session_id).id)
    fork.append({"role": "user", "content": "in the fork"})
    return fork


def _compact(_: Store, transcript: Transcript) -> Transcript:
    transcript.compact(lambda messages, earlier: "all of it", keep_turns=1)
    return transcript


def _rewrite(_: Store, transcript: Transcript) -> Transcript:
    transcript.rewrite([{"role": "user", "content": "other"}])
    return transcript


def _add_large_text(_: Store, transcript: Transcript) -> Transcript:
    transcript.append({"role": "assistant", "content": "x" * 100_000})
    return transcript


@pytest.mark.parametrize("turns", [1, 4, 40])
@pytest.mark.parametrize(
    "change", [None, _undo, _undo_and_go_on, _fork, _compact, _rewrite, _add_large_text]
)
def test_history_read_ahead_is_the_history(
    postgres: Server,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Store, Transcript], Transcript] | None,
    turns: int,
) -> None:
    with postgres.empty_store() as address, tertulia.open(address, settings=FAST) as store:
        _talk(store, BEN, 5)  # their messages lie before those of the next session
        transcript = _talk(store, ANA, turns)
        _talk(store, Source("telegram", "44", user_id="44"), 5)
        if change is not None and turns > 1:
            transcript = change(store, transcript)
        calls = [
            partial(transcript.history, size, tokens, timestamps)
            for size in (1, 3, 50)
            for tokens in (None, 20, 8000)
            for timestamps in ("none", "local")
        ]
        ahead = [call() for call in calls]
        monkeypatch.setattr(type(store.context.db), "has_one_writer", True)
        assert [call() for call in calls] == ahead
        assert not re.search("(question|answer) (43|44)", str(ahead))
