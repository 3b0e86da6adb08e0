"""Promises of links: what a chat sees follows the key, and ends with the link, from either side."""

from __future__ import annotations

from typing import Any

import pytest

from tertulia.core.source import Source
from tertulia.core.usage import Usage
from tertulia.errors import IllegalMove, NotFound
from tertulia.store import Store
from tertulia.testing.fake_clock import FakeClock
from tertulia.testing.fixtures import dm, outcomes

ANNA = dm("100", user_name="Anna")
BEN = dm("666", "discord", user_name="Ben")
CARA = dm("7", "signal")


def say(store: Store, source: Source, text: str) -> str:
    """Store a turn; return the id of its session."""
    with store.turn(source, text) as turn:
        turn.add_assistant(f"ok: {text}", usage=Usage(input=1))
        return turn.session.id


def link(store: Store, joining: Source, offering: Source) -> str:
    return store.people.accept_link(joining, store.people.offer_link(offering))


def find_sessions(store: Store, source: Source, word: str) -> set[str]:
    """Return the sessions in which a search for a person finds a word."""
    return {hit.session_id for hit in store.for_person(source).search(word).items}


class LinkPromises:
    """Promises of linked chats."""

    def test_after_unlinking_each_side_sees_its_own_words_only(self, store: Store) -> None:
        """Also if the chat that joined wrote first in a session of the shared conversation."""
        first = say(store, ANNA, "hello")
        key = link(store, BEN, ANNA)
        store.sessions.end(first, "idle")
        shared = say(store, BEN, "good morning")
        store.people.unlink(BEN)
        secret = say(store, ANNA, "my secret is opensesame")
        own = say(store, BEN, "nobody hears opensesame from me")
        assert store.sessions.require(secret).key == key
        assert find_sessions(store, BEN, "opensesame") == {own}
        assert find_sessions(store, ANNA, "opensesame") == {secret}
        view = store.for_person(BEN)
        for session_id in (first, shared, secret):
            assert view.get(session_id) is None
            with pytest.raises(NotFound):
                view.transcript(session_id)
        assert [session.id for session in view.find().items] == [own]
        assert view.find(key=key).items == ()
        assert {session.id for session in store.for_person(ANNA).find().items} == {
            first, shared, secret,
        }  # fmt: skip

    def test_a_session_belongs_to_the_chat_that_has_its_key(self, store: Store) -> None:
        link(store, BEN, ANNA)
        shared = store.sessions.require(say(store, BEN, "good morning"))
        assert (shared.origin, shared.display_name) == (ANNA, "Anna")
        assert [s.id for s in store.sessions.find(person="telegram:100").items] == [shared.id]
        assert store.sessions.find(person="discord:666").items == ()
        # A model call is charged to the person who wrote; one without an author to the owner.
        store.usage.add(shared.id, Usage(input=5))
        sums = {name: usage.input for name, usage in store.usage.sum("person").items()}
        assert sums == {"discord:666": 1, "telegram:100": 5}
        for successor in (store.sessions.reset(shared.key), store.sessions.fork(shared.id)):
            assert successor is not None
            store.people.unlink(BEN)
            assert store.for_person(BEN).get(successor.id) is None
            assert store.for_person(ANNA).get(successor.id) is not None

    @pytest.mark.parametrize("leaving", [ANNA, BEN], ids=["offered", "joined"])
    def test_either_side_can_unlink(self, store: Store, leaving: Source) -> None:
        link(store, BEN, ANNA)
        shared = say(store, BEN, "hello")
        assert store.people.unlink(leaving)
        assert not store.people.unlink(ANNA)
        assert not store.people.unlink(BEN)
        for source in (ANNA, BEN):
            assert store.people.linked_chats(source) == []
            assert store.people.linked(source) == [store.sessions.key(source)]
        assert store.sessions.require(shared).end_reason == "unlinked"
        assert say(store, ANNA, "mine") != shared
        assert store.sessions.open(BEN).key == store.sessions.key(BEN)

    def test_one_chat_can_leave_and_the_others_stay(self, store: Store) -> None:
        link(store, BEN, ANNA)
        root = link(store, CARA, BEN)
        assert root == store.sessions.key(ANNA)
        assert [chat.source for chat in store.people.linked_chats(CARA)] == [ANNA, BEN]
        assert store.people.unlink(BEN)
        assert [chat.source for chat in store.people.linked_chats(ANNA)] == [CARA]
        assert store.people.unlink(ANNA)
        assert store.people.linked_chats(CARA) == []

    def test_role_and_links_are_those_of_the_single_calls(self, store: Store) -> None:
        link(store, BEN, ANNA)
        link(store, CARA, BEN)
        store.people.remember(BEN, role="member")
        group = Source("telegram", "-7", chat_type="group", user_id="1")
        for source in (ANNA, BEN, CARA, group, Source("local", "main")):
            expected = store.people.role_of(source), store.people.linked_chats(source)
            assert store.people.role_and_links(source) == expected
        assert store.people.role_and_links(BEN)[0] == "member"
        assert len(store.people.role_and_links(BEN)[1]) == 2

    def test_joining_another_conversation_leaves_the_first(self, store: Store) -> None:
        link(store, BEN, ANNA)
        shared = say(store, BEN, "hello")
        link(store, BEN, CARA)
        assert store.sessions.require(shared).end_reason == "unlinked"
        assert store.for_person(BEN).get(shared) is None
        assert store.people.linked_chats(ANNA) == []

    def test_no_chain_and_no_circle_of_links(self, store: Store, clock: FakeClock) -> None:
        link(store, BEN, ANNA)
        clock.forward(minutes=11)
        with pytest.raises(IllegalMove, match="already"):
            link(store, ANNA, BEN)
        with pytest.raises(IllegalMove, match="linked to this one"):
            link(store, ANNA, CARA)
        assert store.sessions.conversation(BEN) == store.sessions.key(ANNA)

    def test_a_request_links_nothing_until_it_is_confirmed(self, store: Store) -> None:
        past = say(store, ANNA, "hello")
        code = store.people.offer_link(ANNA)
        assert store.people.request_link(BEN, code).description == "telegram, id 100"
        assert store.people.linked_chats(ANNA) == []
        assert store.for_person(BEN).get(past) is None
        assert say(store, BEN, "hello") != past
        (asking,) = store.people.pending_links(ANNA)
        assert (asking.chat.description, asking.can_confirm) == ("discord, id 666", True)
        assert [request.can_confirm for request in store.people.pending_links(BEN)] == [False]
        with pytest.raises(NotFound):
            store.people.accept_link(CARA, code)  # a code is typed once
        with pytest.raises(NotFound):
            store.people.confirm_link(BEN)  # only the side that made the code confirms
        assert store.people.confirm_link(ANNA).source == BEN
        assert store.people.pending_links(ANNA) == store.people.pending_links(BEN) == []
        assert store.for_person(BEN).get(past) is not None
        assert say(store, BEN, "hello again") == past

    @pytest.mark.parametrize("leaving", [ANNA, BEN], ids=["offered", "asked"])
    def test_either_side_can_drop_a_request(self, store: Store, leaving: Source) -> None:
        store.people.request_link(BEN, store.people.offer_link(ANNA))
        assert not store.people.unlink(leaving)
        assert store.people.pending_links(ANNA) == store.people.pending_links(BEN) == []
        with pytest.raises(NotFound):
            store.people.confirm_link(ANNA)

    def test_a_request_expires_after_an_hour(self, store: Store, clock: FakeClock) -> None:
        store.people.request_link(BEN, store.people.offer_link(ANNA))
        clock.forward(hours=1)
        assert store.people.pending_links(ANNA) == []
        with pytest.raises(NotFound):
            store.people.confirm_link(ANNA)

    def test_a_code_links_one_of_two_racing_chats(self, store: Store, other: Store) -> None:
        code = store.people.offer_link(ANNA)
        linked, refused = outcomes(
            lambda: store.people.accept_link(BEN, code),
            lambda: other.people.accept_link(CARA, code),
            refusals=NotFound,
        )
        assert (len(linked), len(refused)) == (1, 1)
        assert len(store.people.linked_chats(ANNA)) == 1

    def test_a_refused_link_keeps_its_code(self, store: Store) -> None:
        link(store, CARA, BEN)
        code = store.people.offer_link(ANNA)
        with pytest.raises(IllegalMove):
            store.people.accept_link(BEN, code)  # another chat is linked to it
        assert store.people.accept_link(dm("9"), code) == store.sessions.key(ANNA)

    def test_unlinking_races_with_messages(self, store: Store, other: Store) -> None:
        """Whichever is first, nothing that is said afterwards is seen by the other side."""
        link(store, BEN, ANNA)
        say(store, ANNA, "hello")

        def unlink() -> Any:
            return other.people.unlink(ANNA)

        outcomes(lambda: say(store, BEN, "racing"), unlink, refusals=NotFound)
        secret = say(store, ANNA, "opensesame")
        mine = say(store, BEN, "opensesame")
        assert find_sessions(store, BEN, "opensesame") == {mine}
        assert find_sessions(store, ANNA, "opensesame") == {secret}

    def test_schedules_go_with_the_chat_that_made_them(self, store: Store) -> None:
        link(store, BEN, ANNA)
        schedule = store.schedules.create(BEN, "every 2h", "look at the mail")
        assert store.schedules.get(schedule.id, by=ANNA) is not None
        store.people.unlink(ANNA)
        assert store.schedules.get(schedule.id, by=ANNA) is None
        assert store.schedules.find(by=ANNA).items == ()
        assert store.schedules.get(schedule.id, by=BEN) is not None
