"""Promises of memories: they belong to one person and one agent, and go with their session."""

from __future__ import annotations

from functools import partial

import pytest

from tertulia.core.source import Source
from tertulia.errors import IllegalMove, NotFound
from tertulia.store import Store
from tertulia.testing.fixtures import Handles, dm, run_in_threads


def _texts(store: Store, source: Source) -> list[str]:
    """Return what the agent is shown in a new session of a source, newest first."""
    session = store.sessions.open(source, force_new=True)
    return [memory.text for memory in store.memories.shown(session.id)]


class MemoryPromises:
    """Promises of `store.memories`."""

    def test_a_memory_is_shown_to_its_person_only(self, store: Store, other: Store) -> None:
        store.memories.add(dm("anna"), "Anna sails.")
        assert _texts(other, dm("anna")) == ["Anna sails."]
        assert _texts(other, dm("ben")) == []
        group = Source("telegram", "-5", chat_type="group", user_id="anna")
        session = other.sessions.open(group)
        assert other.memories.shown(session.id) == []
        for act in (other.memories.find, other.memories.is_on):
            with pytest.raises(IllegalMove):
                act(group)
        with pytest.raises(IllegalMove):
            other.memories.record(session.id, "Anna sails.")

    def test_nobody_changes_the_memory_of_another(self, store: Store) -> None:
        memory = store.memories.add(dm("anna"), "Anna sails.")
        for act in (store.memories.forget, store.memories.accept):
            with pytest.raises(NotFound):
                act(dm("ben"), memory.id)
        with pytest.raises(NotFound):
            store.memories.edit(dm("ben"), memory.id, "Ben sails.")
        assert [row.text for row in store.memories.find(dm("anna"))] == ["Anna sails."]

    def test_the_same_text_from_two_handles_is_stored_once(
        self, store: Store, other: Store
    ) -> None:
        for number in range(5):
            text = f"Anna has sailed {number} times."
            run_in_threads(
                *(partial(handle.memories.add, dm("anna"), text) for handle in (store, other) * 3)
            )
        assert len(store.memories.find(dm("anna"))) == 5

    def test_linked_chats_share_memories_until_they_are_unlinked(self, store: Store) -> None:
        phone, laptop = dm("anna"), Source("signal", "7", user_id="7")
        store.memories.add(phone, "Anna sails.")
        store.memories.add(laptop, "Written before the link.")
        store.people.accept_link(laptop, store.people.offer_link(phone))
        assert _texts(store, laptop) == ["Anna sails."]
        store.memories.add(laptop, "Written while linked.")
        assert _texts(store, phone) == ["Written while linked.", "Anna sails."]
        store.people.unlink(laptop)
        assert _texts(store, laptop) == ["Written before the link."]
        assert [row.text for row in store.memories.find(laptop)] == ["Written before the link."]

    def test_what_a_session_shows_is_fixed_when_it_begins(self, handles: Handles) -> None:
        store, clock = handles.open(), handles.clock
        session = store.sessions.open(dm("anna"))
        clock.forward(seconds=1)
        store.memories.record(session.id, "The agent wrote this.")
        proposed = store.memories.record(session.id, "From a document.", is_proposed=True)
        assert store.memories.shown(session.id) == []
        clock.forward(seconds=1)
        assert _texts(store, dm("anna")) == ["The agent wrote this."]
        # What the person does counts at once.
        store.memories.accept(dm("anna"), proposed.id)
        assert [memory.text for memory in store.memories.shown(session.id)] == ["From a document."]

    def test_deleting_a_session_deletes_what_was_remembered_of_it(self, store: Store) -> None:
        session = store.sessions.open(dm("anna"))
        store.memories.record(session.id, "Anna sails.", author="flush")
        store.memories.add(dm("anna"), "Anna cooks.")
        store.sessions.delete(session.id)
        assert [memory.text for memory in store.memories.find(dm("anna"))] == ["Anna cooks."]

    def test_a_memory_that_is_off_stores_and_shows_nothing(self, store: Store) -> None:
        store.memories.add(dm("anna"), "Anna sails.")
        store.memories.switch(dm("anna"), on=False)
        assert not store.memories.is_on(dm("anna"))
        assert _texts(store, dm("anna")) == []
        with pytest.raises(IllegalMove):
            store.memories.add(dm("anna"), "Anna cooks.")
        store.memories.add(dm("ben"), "Ben cooks.")
        store.memories.switch(dm("anna"), on=True)
        assert _texts(store, dm("anna")) == ["Anna sails."]

    def test_the_same_text_is_stored_once(self, store: Store, other: Store) -> None:
        first = store.memories.add(dm("anna"), "Anna sails.")
        assert other.memories.add(dm("anna"), " Anna  sails. ").id == first.id
        assert len(store.memories.find(dm("anna"))) == 1
