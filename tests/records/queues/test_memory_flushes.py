"""The queue of ended sessions whose memory is to be saved."""

from __future__ import annotations

import time

import pytest

from tertulia import NotFound, Session, Source, Store
from tertulia.records.queues.memory_flushes import MAX_ATTEMPTS
from tertulia.testing import FakeClock

ANA = Source("telegram", "42", user_id="42")


def ended_session(store: Store, clock: FakeClock) -> Session:
    """Return a session with a turn that its policy has ended."""
    with store.turn(ANA, "hola") as turn:
        turn.add_assistant("¡hola!")
    clock.forward(days=3)
    session = store.sessions.expire(turn.session.id)
    assert session is not None
    return session


def test_session_ended_by_its_policy_is_claimed_once(store: Store, clock: FakeClock) -> None:
    session = ended_session(store, clock)
    assert [claimed.id for claimed in store.memory_flushes.claim()] == [session.id]
    assert store.memory_flushes.claim() == []
    store.memory_flushes.done(session.id)
    assert "memory: outcome saved" in store.sessions.explain(session.id)


def test_session_reset_by_hand_is_not_put_in(store: Store) -> None:
    with store.turn(ANA, "hola") as turn:
        turn.add_assistant("¡hola!")
    store.sessions.reset(turn.session.key)
    assert store.memory_flushes.claim() == []


def test_session_is_given_up_after_three_claims(store: Store, clock: FakeClock) -> None:
    session = ended_session(store, clock)
    for _ in range(MAX_ATTEMPTS):
        assert len(store.memory_flushes.claim(lease_seconds=0.000_001)) == 1
        time.sleep(0.001)  # leases end by the database's own clock
    assert store.memory_flushes.claim() == []
    assert "memory: outcome given up" in store.sessions.explain(session.id)


def test_done_of_an_unknown_session_raises(store: Store) -> None:
    with pytest.raises(NotFound):
        store.memory_flushes.done("nobody")
