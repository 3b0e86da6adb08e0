"""Deliveries to another conversation are recorded in its transcript."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tertulia
from tertulia import Settings, Source, Store
from tertulia.records import cross_posts
from tertulia.records.process_check import NO_ANSWERS, NeedsProcessCheck
from tertulia.records.queues import outbox
from tertulia.testing import FakeClock

ANA = Source("telegram", "42", user_id="42", account="work")
GROUP = Source("telegram", "-7", chat_type="group")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[Store]:
    settings = Settings(zone="UTC", durability="fast", group_sessions_per_user=False)
    with tertulia.open(tmp_path / "talk.db", settings=settings, clock=clock) as store:
        yield store
        assert store.check() == []


def source_of(store: Store, target: str) -> Source:
    delivery = outbox.build_deliveries(store.context, "hello", target, ANA)[0]
    return store.context.db.read(
        lambda tx: cross_posts.target_source(tx, store.context, delivery, ANA)
    )


def post(store: Store, source: Source, text: str, *, except_session: str | None = None) -> None:
    cross_post = cross_posts.CrossPost(store.context, source, text, store.now(), NO_ANSWERS)
    store.context.db.write(lambda tx: cross_post.record(tx, except_session=except_session))


def test_delivery_to_the_origin_keeps_its_source(store: Store) -> None:
    assert source_of(store, "origin") == ANA


def test_chat_type_of_a_target_is_that_of_its_current_session(store: Store) -> None:
    assert source_of(store, "telegram:-7").chat_type == "dm"
    store.sessions.open(GROUP)
    assert source_of(store, "telegram:-7").chat_type == "group"


def test_text_is_appended_to_the_session_of_the_target(store: Store) -> None:
    session = store.sessions.open(GROUP)
    post(store, GROUP, "hello")
    messages = store.transcript(session.id).load()
    assert [(message["role"], message["content"]) for message in messages] == [
        ("assistant", "hello")
    ]


def test_text_is_not_recorded_twice_in_the_session_that_said_it(store: Store) -> None:
    session = store.sessions.open(GROUP)
    post(store, GROUP, "hello", except_session=session.id)
    assert store.transcript(session.id).load() == []


def test_policy_of_the_target_ends_its_session_and_the_notice_is_kept(
    store: Store, clock: FakeClock
) -> None:
    with store.turn(GROUP, "hi") as turn:
        turn.add_assistant("hi")
    clock.forward(days=3)
    post(store, GROUP, "hello")
    ended = store.sessions.require(turn.session.id)
    assert ended.end_reason is not None
    opened = store.sessions.open(GROUP)
    assert opened.id != ended.id
    assert opened.notice is not None


def test_unknown_processes_are_reported_to_the_caller(tmp_path: Path, clock: FakeClock) -> None:
    settings = Settings(zone="UTC", has_active_processes=lambda key: True)
    with tertulia.open(tmp_path / "guarded.db", settings=settings, clock=clock) as store:
        store.sessions.open(ANA)
        clock.forward(days=1, hours=1)  # the policy is due, and a process could still keep it
        cross_post = cross_posts.CrossPost(store.context, ANA, "hello", store.now(), NO_ANSWERS)
        with pytest.raises(NeedsProcessCheck) as needed:
            store.context.db.write(lambda tx: cross_post.record(tx, except_session=None))
        assert needed.value.key == store.sessions.key(ANA)
