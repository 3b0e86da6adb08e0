"""Values that a database cannot take as they are: nothing anybody writes is impossible to store."""

from __future__ import annotations

import random
import string
from collections.abc import Iterator

import pytest

import tertulia
from tertulia import Settings, Source, Store, Usage
from tertulia.testing.fixtures import (
    said,
    texts,
)

FAST = Settings(zone="UTC", durability="fast")


def noise(size: int, seed: int) -> str:
    """Text that cannot be compressed: PostgreSQL compresses what it puts into an index."""
    return "".join(random.Random(seed).choices(string.ascii_letters + string.digits, k=size))


# Longer than an entry of an index in PostgreSQL may be, and equal for most of their length.
LONG = noise(10_000, 1)
OTHER = LONG[:-1] + "!"


@pytest.fixture
def store(where: str) -> Iterator[Store]:
    with tertulia.open(where, settings=FAST) as store:
        yield store
        store.settle()
        assert store.check() == []


def of(long: str) -> Source:
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
    store.inbox.put(of(LONG), "hello", message_id=message_id)
    (arrival,) = store.inbox.claim()
    with store.turn(of(LONG), "hello", message_id=message_id) as turn:
        turn.add_assistant("hi", usage=Usage(1), deliver="origin")
        turn.deliver("and more", delivery=f"one {message_id}")
        turn.deliver("and more", delivery=f"one {message_id}")
    store.inbox.done(arrival)
    with store.turn(of(LONG), "hello", message_id=message_id) as again:
        assert (again.duplicate, again.answer) == (True, "hi")
    (session,) = store.sessions.find().items
    assert session.origin == of(LONG)
    parcels = store.outbox.claim() + store.outbox.claim()
    assert [parcel.chat_id for parcel in parcels] == [LONG]
    store.outbox.done(parcels[0])
    (second,) = store.outbox.claim()
    assert (second.chat_id, second.body["text"]) == (LONG, "and more")
    store.outbox.done(second)
    assert store.outbox.claim() == []


def test_long_ids_that_differ_at_their_end_are_distinct(store: Store) -> None:
    for long in (LONG, OTHER):
        with store.turn(of(long), long[-1], message_id=long) as turn:
            assert not turn.duplicate
            turn.add_assistant(f"to {long[-1]}", deliver="origin")
    assert store.sessions.key(of(LONG)) != store.sessions.key(of(OTHER))
    assert store.sessions.count() == 2
    assert {parcel.chat_id for parcel in store.outbox.claim()} == {LONG, OTHER}
    for long in (LONG, OTHER):
        (seen,) = store.for_person(of(long)).find().items
        assert texts(store.transcript(seen.id)) == [long[-1], f"to {long[-1]}"]
        (mine,) = store.sessions.find(person=f"alt {long}").items
        assert mine.id == seen.id


def test_person_with_a_long_id_has_a_role_a_zone_and_links(store: Store) -> None:
    here, there = (Source("telegram", id_, user_id=id_) for id_ in (LONG, OTHER))
    store.sessions.open(here)
    person = store.people.person_of(here)
    assert person is not None
    store.people.set_zone(person, "Asia/Tokyo")
    code = store.people.ask(here)
    assert code is not None
    assert store.people.approve(code).zone == "Asia/Tokyo"
    assert store.people.role_of(here) == "member"
    assert [found.user_id for found in store.people.find(role="member")] == [LONG]
    key = store.people.accept_link(there, store.people.offer_link(here))
    assert store.sessions.open(there).key == key == store.sessions.key(here)


def test_titles_are_unique_for_an_owner_with_a_long_id(store: Store) -> None:
    sessions = [store.sessions.open(Source("telegram", id_, user_id=id_)) for id_ in (LONG, OTHER)]
    title = noise(100, 2)
    assert [store.sessions.rename(one.id, title).title for one in sessions] == [title] * 2
    fresh = store.sessions.reset(sessions[0].key)
    assert fresh is not None
    with pytest.raises(tertulia.Duplicate):
        store.sessions.rename(fresh.id, title)


STRANGE = ["\x00", "a\x00b", "\ud800", "\udc00\ud800", "\u0085", "\uffff", "'; drop table x --"]


@pytest.mark.parametrize("strange", STRANGE, ids=ascii)
def test_unusual_characters_are_accepted_everywhere(store: Store, strange: str) -> None:
    source = Source(
        "telegram",
        f"chat {strange}",
        user_id=f"user {strange}",
        user_id_alt=f"alt {strange}",
        user_name=f"name {strange}",
        chat_name=strange,
        chat_topic=strange,
        thread_id=strange,
        account=strange,
    )
    store.inbox.put(source, strange, message_id=f"m {strange}")
    (arrival,) = store.inbox.claim()
    with store.turn(source, f"word {strange}", message_id=f"m {strange}") as turn:
        turn.add_assistant(None, tool_calls=[tertulia.ToolCall("c1", strange, {strange: strange})])
        turn.add_tool_result("c1", strange)
        turn.add_usage(Usage(1, model=strange, provider=strange, base_url=strange))
        turn.deliver(strange, delivery=f"d {strange}")
        turn.add_assistant(f"answer {strange}", reasoning=strange, deliver="origin")
    store.inbox.failed(arrival, strange)
    (parcel,) = store.outbox.claim()
    store.outbox.failed(parcel, strange)
    with store.turn(source, strange, message_id=f"m {strange}") as again:
        assert (again.duplicate, again.answer) == (True, f"answer {strange}")
    store.sessions.rename(turn.session.id, f"title {strange}")
    store.sessions.end(turn.session.id, strange)
    assert store.transcript(turn.session.id).load()[0]["content"] == f"word {strange}"
    assert store.search("answer").items


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**40])
def test_too_large_numbers_are_refused_and_change_nothing(store: Store, number: int) -> None:
    session = store.sessions.open(Source("telegram", "42"))
    store.transcript(session.id).append(said("one"))
    with pytest.raises(tertulia.Error) as caught:
        store.usage.add(session.id, Usage(number))
    assert caught.value.hint
    assert store.sessions.require(session.id).usage.total == 0
    assert store.usage.sum("session") == {}
    store.usage.add(session.id, Usage(1))
    assert store.sessions.require(session.id).usage.total == 1
