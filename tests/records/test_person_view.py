"""A person's view of a store contains nothing of anybody else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tertulia
from tertulia import ConfigError, NotFound, Settings, Source, Store
from tests.servers.empty_stores import NewPlace

ANA = Source("telegram", "42", user_id="42")
BOB = Source("telegram", "43", user_id="43")
ANA_IN_GROUP = Source("telegram", "-1", chat_type="group", user_id="42")
BOB_IN_GROUP = Source("telegram", "-1", chat_type="group", user_id="43")


@pytest.fixture
def store(where: str) -> Iterator[Store]:
    with tertulia.open(where) as store:
        for source in (ANA, BOB, ANA_IN_GROUP, BOB_IN_GROUP):
            session = store.sessions.open(source)
            store.transcript(session.id).append({"role": "user", "content": "the secret word"})
        yield store


def ids(store: Store, source: Source) -> set[str]:
    return {session.id for session in store.for_person(source).find().items}


def test_direct_message_shows_all_sessions_of_the_person(store: Store) -> None:
    own = {store.sessions.open(ANA).id, store.sessions.open(ANA_IN_GROUP).id}
    assert ids(store, ANA) == own
    assert {hit.session_id for hit in store.for_person(ANA).search("secret").items} == own


def test_group_shows_only_its_own_conversation(store: Store) -> None:
    here = {store.sessions.open(ANA_IN_GROUP).id}
    assert ids(store, ANA_IN_GROUP) == here
    assert {hit.session_id for hit in store.for_person(ANA_IN_GROUP).search("secret").items} == here


def test_session_of_another_person_is_not_found(store: Store) -> None:
    other = store.sessions.open(BOB).id
    view = store.for_person(ANA)
    assert view.get(other) is None
    with pytest.raises(NotFound) as caught:
        view.transcript(other)
    with pytest.raises(NotFound) as nothing:
        view.transcript("20200101_000000_00000000")
    # Apart from the id, the two messages must be the same.
    assert str(caught.value).replace(other, "X") == str(nothing.value).replace(
        "20200101_000000_00000000", "X"
    )


def test_filters_cannot_show_sessions_of_others(store: Store) -> None:
    view = store.for_person(ANA)
    assert {s.id for s in view.find(person="telegram:43").items} == ids(store, ANA)
    assert view.find(key=store.sessions.key(BOB)).items == ()


def test_same_user_id_on_two_platforms_is_two_people(store: Store) -> None:
    other = store.sessions.open(Source("discord", "x", user_id="42"))
    assert other.id not in ids(store, ANA)
    with pytest.raises(ConfigError, match="2 people"):
        store.search("secret", person="42")
    assert store.search("secret", person="42", platform="telegram").items


people = st.integers(0, 3)


@settings(max_examples=20)
@given(st.lists(st.tuples(people, st.sampled_from(["dm", "group", "shared"])), max_size=12))
def test_nobody_ever_sees_messages_of_another(
    new_place: NewPlace, writes: list[tuple[int, str]]
) -> None:
    settings = Settings(durability="fast")
    with new_place() as place, tertulia.open(place, settings=settings) as store:
        for who, where in writes:
            source = _source(who, where)
            session = store.sessions.open(source)
            store.transcript(session.id).append({"role": "user", "content": f"word from {who}"})
        for who in range(4):
            view = store.for_person(_source(who, "dm"))
            contents = [
                message["content"]
                for session in view.find(limit=100).items
                for message in view.transcript(session.id).load()
            ]
            assert set(contents) <= {f"word from {who}"}
            assert len(contents) == sum(1 for speaker, _ in writes if speaker == who)


def _source(who: int, where: str) -> Source:
    if where == "dm":
        return Source("telegram", str(who), user_id=str(who))
    chat = "-1" if where == "group" else "-2"
    return Source("telegram", chat, chat_type="group", user_id=str(who))
