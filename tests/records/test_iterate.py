"""Iteration over sessions and messages: order, pages, and sessions that change meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tertulia
from tertulia import ConfigError, NotFound, Settings, Source, Store
from tertulia.records import iterate
from tertulia.records.iterate import Selection
from tertulia.testing import FakeClock

ANA = Source("telegram", "42", user_id="42")
BEN = Source("discord", "43", user_id="43")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[Store]:
    settings = Settings(zone="UTC", durability="fast")
    with tertulia.open(tmp_path / "talk.db", settings=settings, clock=clock) as store:
        yield store


def session_ids(store: Store, **selection: Any) -> list[str]:
    sessions = iterate.sessions(store.context, Selection(**selection))
    return [session.id for session in sessions]


def contents(store: Store, session_id: str) -> list[Any]:
    return [message.body["content"] for message in iterate.messages(store.context, session_id)]


def write(store: Store, session_id: str, *texts: str) -> None:
    store.transcript(session_id).extend({"role": "user", "content": text} for text in texts)


def test_sessions_come_in_the_order_they_began(store: Store, clock: FakeClock) -> None:
    first = store.sessions.open(ANA).id
    second = store.sessions.open(BEN).id
    ended = store.sessions.reset(store.sessions.key(ANA))
    assert ended is not None
    assert session_ids(store) == [first, second, ended.id]
    assert session_ids(store, platform="discord") == [second]
    assert session_ids(store, state="ended") == [first]
    assert session_ids(store, active_since=clock.forward(days=1)) == []


def test_ids_keep_their_order_and_unknown_ones_raise_first(store: Store) -> None:
    first, second = store.sessions.open(ANA).id, store.sessions.open(BEN).id
    assert session_ids(store, ids=(second, first, second)) == [second, first]
    sessions = iterate.sessions(store.context, Selection(ids=(first, "nobody")))
    with pytest.raises(NotFound, match="nobody"):
        next(sessions)


def test_filters_cannot_be_combined_with_ids() -> None:
    with pytest.raises(ConfigError, match="cannot be combined"):
        Selection(ids=("x",), platform="telegram")
    with pytest.raises(ConfigError, match="Allowed: all"):
        Selection(state="asleep")  # type: ignore[arg-type]


def test_messages_are_those_of_the_view_when_the_loop_began(store: Store) -> None:
    session_id = store.sessions.open(ANA).id
    write(store, session_id, *map(str, range(iterate._MESSAGES + 1)))
    messages = iterate.messages(store.context, session_id)
    next(messages)
    write(store, session_id, "later")
    store.transcript(session_id).clear()
    assert len(list(messages)) == iterate._MESSAGES
    assert contents(store, session_id) == []


def test_session_deleted_during_the_loop_raises(store: Store) -> None:
    session_id = store.sessions.open(ANA).id
    write(store, session_id, *map(str, range(iterate._MESSAGES + 1)))
    messages = iterate.messages(store.context, session_id)
    next(messages)
    store.sessions.delete(session_id)
    with pytest.raises(NotFound):
        list(messages)


def test_summary_counts_the_messages_it_replaces(store: Store) -> None:
    session_id = store.sessions.open(ANA).id
    for number in range(4):
        with store.turn(ANA, f"question {number}") as turn:
            turn.add_assistant("answer")
    assert iterate.summary(store.context, session_id) is None
    assert (
        store.transcript(session_id).compact(lambda bodies, previous: "in short", keep_turns=1)
        is not None
    )
    assert iterate.summary(store.context, session_id) == ("in short", 6)
