"""Finding sessions: pages follow each other without gaps, and expired ones are found."""

from __future__ import annotations

import pytest

from tertulia import ConfigError, Session, Source, Store
from tertulia.core.session import State
from tertulia.records.sessions import find
from tertulia.records.sessions.find import PAGE_LIMIT, FindExpired, find_within
from tertulia.testing import FakeClock
from tests.records.store_inspection import ANA, BEN


@pytest.fixture
def sessions(store: Store, clock: FakeClock) -> list[Session]:
    """Ten sessions on two platforms, oldest first."""
    opened = []
    for number in range(10):
        platform = "telegram" if number % 2 else "discord"
        opened.append(store.sessions.open(Source(platform, str(number), user_id=str(number))))
        clock.forward(minutes=1)
    return opened


def test_pages_follow_each_other_without_gaps(store: Store, sessions: list[Session]) -> None:
    ids: list[str] = []
    cursor = None
    while True:
        page = store.sessions.find(limit=3, cursor=cursor)
        ids += [session.id for session in page.items]
        cursor = page.next
        if cursor is None:
            break
    assert ids == [session.id for session in reversed(sessions)]


def test_overlapping_scopes_give_each_session_once(store: Store, sessions: list[Session]) -> None:
    everything = {"platform": None, "key": None, "person": None}
    telegram = {"platform": "telegram", "key": None, "person": None}
    page = find_within(store.context, [everything, telegram])
    assert [session.id for session in page.items] == [session.id for session in reversed(sessions)]


def test_state_and_activity_limit_a_page(store: Store, sessions: list[Session]) -> None:
    store.sessions.end(sessions[0].id, "done")
    assert [item.id for item in store.sessions.find(state="ended").items] == [sessions[0].id]
    recent = store.sessions.find(active_minutes=2.5).items
    assert [item.id for item in recent] == [sessions[9].id, sessions[8].id]


def test_text_without_words_finds_nothing(store: Store, sessions: list[Session]) -> None:
    assert store.sessions.find(text="…").items == ()


@pytest.mark.parametrize("limit", [0, PAGE_LIMIT + 1])
def test_limit_out_of_range_is_refused(store: Store, limit: int) -> None:
    with pytest.raises(ConfigError):
        store.sessions.find(limit=limit)
    with pytest.raises(ConfigError):
        store.sessions.expired(limit=limit)


def test_expired_sessions_are_found_longest_inactive_first(
    store: Store, clock: FakeClock, sessions: list[Session]
) -> None:
    assert store.sessions.expired().items == ()
    clock.forward(days=3)
    store.sessions.open(BEN)
    ids: list[str] = []
    cursor = None
    while True:
        page = FindExpired(store.context, store.now()).find(4, cursor)
        ids += [session.id for session in page.items]
        cursor = page.next
        if cursor is None:
            break
    assert ids == [session.id for session in sessions]


def test_a_session_with_a_running_turn_is_not_expired(store: Store, clock: FakeClock) -> None:
    with store.turn(ANA, "hello") as turn:
        clock.forward(days=3)
        assert store.sessions.expired().items == ()
        turn.add_assistant("hi")
    assert [item.id for item in store.sessions.expired().items] == [turn.session.id]


def test_every_session_of_a_key_is_found_across_pages(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find, "PAGE_LIMIT", 2)
    ids = [store.sessions.open(ANA, force_new=True).id for _ in range(5)]
    store.sessions.open(BEN)
    key = store.sessions.key(ANA)

    def read(state: State) -> list[str]:
        rows = store.context.read(lambda tx: list(find.iterate_rows(tx, key=key, state=state)))
        return [row.id for row in rows]

    assert read("all") == ids[::-1]
    assert read("current") == ids[-1:]
