"""Unusual values: long ids, unusual characters and large numbers, on both databases."""

from __future__ import annotations

import random
import string
from collections.abc import Iterator

import pytest

import tertulia
from tertulia import Settings, Source, Store, Usage
from tertulia.testing.fixtures import texts, user_message

FAST = Settings(zone="UTC", durability="fast")


def noise(size: int, seed: int) -> str:
    """Return text that cannot be compressed: PostgreSQL compresses index entries."""
    return "".join(random.Random(seed).choices(string.ascii_letters + string.digits, k=size))


# Longer than an index entry of PostgreSQL may be, and equal except for the last character.
LONG = noise(10_000, 1)
OTHER = LONG[:-1] + "!"


@pytest.fixture
def store(where: str) -> Iterator[Store]:
    with tertulia.open(where, settings=FAST) as store:
        yield store
        store.settle()
        assert store.check() == []


def source_of(long: str) -> Source:
    return Source(
        "telegram",
        long,
        user_id=long,
        user_id_alt=f"alt {long}",
        user_name=f"Name {long}",
        thread_id=long,
        chat_type="group",
        chat_name=long,
        chat_topic=long,
    )


@pytest.mark.parametrize("message_id", [LONG, "1"], ids=["long id", "short id"])
def test_long_ids_are_accepted(store: Store, message_id: str) -> None:
    store.inbox.put(source_of(LONG), "hello", message_id=message_id)
    (item,) = store.inbox.claim()
    with store.turn(source_of(LONG), "hello", message_id=message_id) as turn:
        turn.add_assistant("hi", usage=Usage(1), deliver="origin")
        turn.deliver("and more", delivery=f"one {message_id}")
        turn.deliver("and more", delivery=f"one {message_id}")
    store.inbox.done(item)
    with store.turn(source_of(LONG), "hello", message_id=message_id) as again:
        assert (again.duplicate, again.answer) == (True, "hi")
    (session,) = store.sessions.find().items
    assert session.origin == source_of(LONG)
    deliveries = store.outbox.claim() + store.outbox.claim()
    assert [delivery.chat_id for delivery in deliveries] == [LONG]
    store.outbox.done(deliveries[0])
    (second,) = store.outbox.claim()
    assert (second.chat_id, second.body["text"]) == (LONG, "and more")
    store.outbox.done(second)
    assert store.outbox.claim() == []


def test_long_ids_that_differ_at_their_end_are_distinct(store: Store) -> None:
    for long in (LONG, OTHER):
        with store.turn(source_of(long), long[-1], message_id=long) as turn:
            assert not turn.duplicate
            turn.add_assistant(f"to {long[-1]}", deliver="origin")
    assert store.sessions.key(source_of(LONG)) != store.sessions.key(source_of(OTHER))
    assert store.sessions.count() == 2
    assert {delivery.chat_id for delivery in store.outbox.claim()} == {LONG, OTHER}
    for long in (LONG, OTHER):
        (session,) = store.for_person(source_of(long)).find().items
        assert texts(store.transcript(session.id)) == [long[-1], f"to {long[-1]}"]
        (mine,) = store.sessions.find(person=f"alt {long}").items
        assert mine.id == session.id


def test_person_with_a_long_id_has_a_role_a_zone_and_links(store: Store) -> None:
    here, there = (Source("telegram", id_, user_id=id_) for id_ in (LONG, OTHER))
    store.sessions.open(here)
    person = store.people.person_of(here)
    assert person is not None
    store.people.set_zone(person, "Asia/Tokyo")
    code = store.people.request_pairing(here)
    assert code is not None
    assert store.people.approve(code).zone == "Asia/Tokyo"
    assert store.people.role_of(here) == "member"
    assert [person.user_id for person in store.people.find(role="member")] == [LONG]
    key = store.people.accept_link(there, store.people.offer_link(here))
    assert store.sessions.open(there).key == key == store.sessions.key(here)


def test_titles_are_unique_for_an_owner_with_a_long_id(store: Store) -> None:
    sessions = [store.sessions.open(Source("telegram", id_, user_id=id_)) for id_ in (LONG, OTHER)]
    title = noise(100, 2)
    assert [store.sessions.rename(session.id, title).title for session in sessions] == [title] * 2
    fresh = store.sessions.reset(sessions[0].key)
    assert fresh is not None
    with pytest.raises(tertulia.Duplicate):
        store.sessions.rename(fresh.id, title)


UNUSUAL = ["\x00", "a\x00b", "\ud800", "\udc00\ud800", "\u0085", "\uffff", "'; drop table x --"]


@pytest.mark.parametrize("unusual", UNUSUAL, ids=ascii)
def test_unusual_characters_are_accepted_everywhere(store: Store, unusual: str) -> None:
    source = Source(
        "telegram",
        f"chat {unusual}",
        user_id=f"user {unusual}",
        user_id_alt=f"alt {unusual}",
        user_name=f"name {unusual}",
        chat_name=unusual,
        chat_topic=unusual,
        thread_id=unusual,
        account=unusual,
    )
    store.inbox.put(source, unusual, message_id=f"m {unusual}")
    (item,) = store.inbox.claim()
    with store.turn(source, f"word {unusual}", message_id=f"m {unusual}") as turn:
        turn.add_assistant(None, tool_calls=[tertulia.ToolCall("c1", unusual, {unusual: unusual})])
        turn.add_tool_result("c1", unusual)
        turn.add_usage(Usage(1, model=unusual, provider=unusual, base_url=unusual))
        turn.deliver(unusual, delivery=f"d {unusual}")
        turn.add_assistant(f"answer {unusual}", reasoning=unusual, deliver="origin")
    store.inbox.failed(item, unusual)
    (delivery,) = store.outbox.claim()
    store.outbox.failed(delivery, unusual)
    with store.turn(source, unusual, message_id=f"m {unusual}") as again:
        assert (again.duplicate, again.answer) == (True, f"answer {unusual}")
    store.sessions.rename(turn.session.id, f"title {unusual}")
    store.sessions.end(turn.session.id, unusual)
    assert store.transcript(turn.session.id).load()[0]["content"] == f"word {unusual}"
    assert store.search("answer").items


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**40])
def test_too_large_numbers_are_refused_and_change_nothing(store: Store, number: int) -> None:
    session = store.sessions.open(Source("telegram", "42"))
    store.transcript(session.id).append(user_message("one"))
    with pytest.raises(tertulia.Error) as caught:
        store.usage.add(session.id, Usage(number))
    assert caught.value.hint
    assert store.sessions.require(session.id).usage.total == 0
    assert store.usage.sum("session") == {}
    store.usage.add(session.id, Usage(1))
    assert store.sessions.require(session.id).usage.total == 1
