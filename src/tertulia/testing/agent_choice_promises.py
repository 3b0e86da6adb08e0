"""Promises of several agents: who answers where, and that they share nothing."""

from __future__ import annotations

import pytest

from tertulia.core.agent_route import AgentRoute
from tertulia.core.source import Source
from tertulia.errors import IllegalMove, NotFound
from tertulia.records.agent_choices import SessionAgent
from tertulia.store import Store
from tertulia.testing.fixtures import Handles, dm

_ROUTES = (
    AgentRoute(agent="support", platform="telegram", chat="-100"),
    AgentRoute(agent="eyes", person="telegram:carl"),
)


def _group(user: str, chat: str = "-100") -> Source:
    return Source("telegram", chat, chat_type="group", user_id=user)


def _open(handles: Handles) -> Store:
    return handles.open(agents=("support", "eyes"), routes=_ROUTES)


class AgentChoicePromises:
    """Promises of `store.agent_choices`."""

    def test_routes_decide_and_a_choice_wins(self, handles: Handles) -> None:
        store, other = _open(handles), _open(handles)
        assert store.agent_choices.resolve(dm("anna")).agent is None
        assert store.agent_choices.resolve(_group("anna")).agent == "support"
        assert store.agent_choices.resolve(dm("carl")).agent == "eyes"
        store.agent_choices.choose(dm("anna"), "eyes", by="telegram:anna")
        store.agent_choices.choose(_group("ben"), "main", by="telegram:ben")
        assert other.agent_choices.resolve(dm("anna")).agent == "eyes"
        assert other.agent_choices.resolve(_group("anna")).agent is None
        assert other.agent_choices.resolve(_group("ben", "-200")).agent is None
        with pytest.raises(NotFound):
            store.agent_choices.choose(dm("anna"), "nobody", by="telegram:anna")

    def test_an_agent_that_is_gone_does_not_answer(self, handles: Handles) -> None:
        _open(handles).agent_choices.choose(dm("anna"), "eyes", by="telegram:anna")
        later = handles.open(agents=("support",))
        assert later.agent_choices.resolve(dm("anna")) == dm("anna")

    def test_agents_share_no_session_and_no_memory(self, handles: Handles) -> None:
        store = _open(handles)
        anna, eyes = dm("anna"), dm("anna").with_fields(agent="eyes")
        with store.turn(anna, "for main") as turn:
            turn.add_assistant("yes")
        with store.turn(eyes, "for eyes") as turn:
            assert [message["content"] for message in turn.history()] == ["for eyes"]
            turn.add_assistant("yes")
            session = turn.session
        assert (session.agent, session.key) == ("eyes", store.sessions.key(eyes))
        assert store.sessions.key(eyes) != store.sessions.key(anna)
        assert store.sessions.reset(session.key).agent == "eyes"  # type: ignore[union-attr]
        store.memories.add(anna, "Anna sails.")
        assert store.memories.find(eyes) == []
        assert [memory.text for memory in store.memories.of_person("telegram:anna")] == [
            "Anna sails."
        ]
        item = store.inbox.put(eyes, "later", message_id="1")
        assert (item.key, item.source.agent) == (session.key, "eyes")

    def test_chats_of_two_agents_cannot_be_linked(self, handles: Handles) -> None:
        store = _open(handles)
        code = store.people.offer_link(dm("anna").with_fields(agent="eyes"))
        with pytest.raises(IllegalMove):
            store.people.accept_link(dm("ben"), code)

    def test_model_and_prompt_stay_with_the_session(self, store: Store, other: Store) -> None:
        session = store.sessions.open(dm("anna"))
        assert store.agent_choices.of_session(session.id) == SessionAgent()
        assert store.agent_choices.begin_prompt(session.id, "Be kind.") == "Be kind."
        assert other.agent_choices.begin_prompt(session.id, "Be rude.") == "Be kind."
        store.agent_choices.set_model(session.id, "small", by="telegram:anna")
        assert other.agent_choices.of_session(session.id) == SessionAgent("small", "Be kind.")
        fork = other.sessions.fork(session.id)
        assert store.agent_choices.of_session(fork.id) == SessionAgent("small", "Be kind.")
        new = store.sessions.open(dm("anna"), force_new=True)
        assert store.agent_choices.of_session(new.id) == SessionAgent()
        store.agent_choices.set_model(session.id, None)
        assert other.agent_choices.of_session(session.id) == SessionAgent(None, "Be kind.")

    def test_deleting_sessions_deletes_their_prompts(self, store: Store) -> None:
        sessions = [store.sessions.open(dm(name)) for name in ("anna", "ben")]
        for session in sessions:
            store.agent_choices.begin_prompt(session.id, "Be kind.")
        store.sessions.delete(sessions[0].id)
        assert store.agent_choices.of_session(sessions[1].id).prompt == "Be kind."
        store.sessions.delete(sessions[1].id)
        assert store.agent_choices.of_session(sessions[0].id) == SessionAgent()
        with pytest.raises(NotFound):
            store.agent_choices.begin_prompt(sessions[0].id, "Be kind.")
