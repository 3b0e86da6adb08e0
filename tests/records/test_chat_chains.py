"""Answers found by what was said up to them: where a conversation goes on, on both databases."""

from __future__ import annotations

import pytest

import tertulia
from tertulia import Source, Store
from tertulia.testing import FakeClock

ANA = Source("api", "a", account="ana", user_id="ana")
OTHER = Source("api", "b", account="ana", user_id="ana")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def answered(store: Store, source: Source, text: str) -> tuple[str, int]:
    with store.turn(source, text) as turn:
        turn.add_assistant(f"re {text}")
    return turn.session.id, store.transcript(turn.session.id).entries(newest=1)[0].seq


def test_end_of_a_session_comes_before_the_newest(where: str, clock: FakeClock) -> None:
    with tertulia.open(where, clock=clock) as store:
        first = answered(store, ANA, "Hi")
        store.chat_chains.put("d1", *first)
        store.chat_chains.put("d1", *first)  # once is enough
        clock.forward(minutes=1)
        second = answered(store, OTHER, "Hi")
        store.chat_chains.put("d1", *second)
        match = store.chat_chains.find("d1")
        assert match is not None
        assert (match.session_id, match.seq, match.is_end) == (*second, True)
        assert match.origin.chat_id == "b"
        answered(store, OTHER, "More")
        match = store.chat_chains.find("d1")
        assert match is not None
        assert (match.session_id, match.is_end) == (first[0], True)
        in_other = store.chat_chains.find("d1", key=store.sessions.key(OTHER))
        assert in_other is not None
        assert (in_other.session_id, in_other.is_end) == (second[0], False)
        assert store.chat_chains.find("d2") is None


def test_ended_session_is_no_end(where: str, clock: FakeClock) -> None:
    with tertulia.open(where, clock=clock) as store:
        session_id, seq = answered(store, ANA, "Hi")
        store.chat_chains.put("d1", session_id, seq)
        store.sessions.end(session_id, "idle")
        match = store.chat_chains.find("d1")
        assert match is not None
        assert not match.is_end


def test_deleted_session_is_not_found(where: str, clock: FakeClock) -> None:
    with tertulia.open(where, clock=clock) as store:
        session_id, seq = answered(store, ANA, "Hi")
        store.chat_chains.put("d1", session_id, seq)
        store.sessions.delete(session_id)
        assert store.chat_chains.find("d1") is None
        store.chat_chains.put("d1", session_id, seq)  # the answer of a turn that came too late
        assert store.chat_chains.find("d1") is None
