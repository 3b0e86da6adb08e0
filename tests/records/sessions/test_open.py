"""Opening a session: the policy decides, and processes and turns protect it."""

from __future__ import annotations

import pytest

from tertulia import Store
from tertulia.records import session_rows
from tertulia.records.process_check import NeedsProcessCheck
from tertulia.records.sessions.open import (
    OpenSession,
    activity_of,
    can_be_protected,
    expiry_reason,
)
from tertulia.storage.rows import SessionRow
from tertulia.testing import FakeClock, Handles
from tests.records.store_inspection import ANA


def attempt(store: Store, has_processes: bool | None = None) -> OpenSession:
    key = store.sessions.key(ANA)
    answers = {} if has_processes is None else {key: has_processes}
    return OpenSession(store.context, ANA, key, store.now(), answers=answers)


def row_of(store: Store, session_id: str) -> SessionRow:
    return store.context.db.read(lambda tx: session_rows.require(tx, session_id))


@pytest.fixture
def guarded(handles: Handles) -> Store:
    """A store whose owner tells whether processes run."""
    return handles.open(has_active_processes=lambda key: True)


def test_find_does_not_touch_activity(store: Store, clock: FakeClock) -> None:
    session = store.sessions.open(ANA)
    clock.forward(minutes=1)
    assert store.context.db.write(attempt(store).find)[0].id == session.id
    assert store.sessions.require(session.id).updated_at == session.updated_at
    store.context.db.write(attempt(store).open)
    assert store.sessions.require(session.id).updated_at > session.updated_at


def test_an_expired_session_is_followed_by_a_new_one_with_a_notice(
    store: Store, clock: FakeClock
) -> None:
    with store.turn(ANA, "hello") as turn:
        turn.add_assistant("hi")
    clock.forward(days=3)
    session = store.sessions.open(ANA)
    assert session.parent_id == turn.session.id
    assert session.notice is not None
    assert (session.notice.reason, session.notice.had_activity) == ("idle", True)
    assert store.sessions.open(ANA).notice is None


def test_processes_are_checked_only_when_the_policy_would_end_the_session(
    guarded: Store, clock: FakeClock
) -> None:
    session = guarded.sessions.open(ANA)
    db = guarded.context.db
    db.write(attempt(guarded).open)
    clock.forward(hours=36)
    with pytest.raises(NeedsProcessCheck) as needed:
        db.write(attempt(guarded).open)
    assert needed.value.key == session.key
    assert db.write(attempt(guarded, has_processes=True).find)[0].id == session.id
    assert db.write(attempt(guarded, has_processes=False).find)[0].id != session.id


def test_a_process_protects_a_session_for_a_limited_time(store: Store, clock: FakeClock) -> None:
    session = store.sessions.open(ANA)
    row = row_of(store, session.id)
    assert expiry_reason(store.context, row, store.now(), None) is None
    clock.forward(hours=36)
    assert expiry_reason(store.context, row, store.now(), None) == "idle"
    assert can_be_protected(store.context, row, store.now(), None)
    clock.forward(days=2)
    assert not can_be_protected(store.context, row, store.now(), None)


def test_activity_is_what_a_policy_decides_by(store: Store) -> None:
    session = store.sessions.open(ANA)
    assert activity_of(row_of(store, session.id)) == (session.updated_at, None)
    ended = store.sessions.end(session.id, "done")
    assert activity_of(row_of(store, session.id)) == (session.updated_at, ended.ended_at)
