"""The commands /agent and /model: who answers in a chat, and with which model in a session."""

from __future__ import annotations

from typing import NamedTuple

from tertulia.core.source import Source
from tertulia.core.text.prompt_safe import clean_for_prompt
from tertulia.errors import AccessDenied, NotFound
from tertulia.gateway.agent_table import AgentTable, ConfiguredAgent
from tertulia.records.people import ROLES, Role
from tertulia.store import Store

DEFAULT = "default"


class Choice(NamedTuple):
    """The store, the chat and the person that something is chosen for."""

    store: Store
    source: Source
    role: Role
    actor: str
    agents: AgentTable

    def require_owner(self, where: str) -> None:
        """Raise `AccessDenied` unless the person is an owner; `where` says why that matters."""
        if ROLES.index(self.role) > ROLES.index("owner"):
            raise AccessDenied(f"{where}, only the owner chooses.", role="owner")


def run_agent(choice: Choice, argument: str) -> str:
    """Run /agent: list the agents, or let one answer in this chat."""
    current = choice.agents.of(choice.source)
    allowed = [entry for entry in choice.agents if entry.may_be_chosen_by(choice.role)]
    if not argument:
        return _list_agents(current, allowed)
    entry = choice.agents.get(argument)
    if entry is None or entry not in allowed:
        raise NotFound(
            f"There is no agent {clean_for_prompt(argument, 40)!r} that you may choose.",
            hint="/agent lists them.",
        )
    if choice.source.chat_type != "dm":
        choice.require_owner("In a group")
    # Stored also if it answers already: a route that changes later does not change what was chosen.
    choice.store.agent_choices.choose(choice.source, entry.name, by=choice.actor)
    if entry is current:
        return f"{entry.name} answers here already."
    return f"{entry.name} answers here from now on. To go back, send /agent {current.name}."


def _list_agents(current: ConfiguredAgent, allowed: list[ConfiguredAgent]) -> str:
    others = [entry.name for entry in allowed if entry is not current]
    if not others:
        return f"{current.name} answers here; there is no other agent for you to choose."
    return (
        f"{current.name} answers here. Others: {', '.join(others)}."
        " To choose one of them, send /agent NAME."
    )


def run_model(choice: Choice, argument: str) -> str:
    """Run /model: list the models, or let one answer in this session."""
    entry = choice.agents.of(choice.source)
    if not entry.models:
        return f"{entry.model or entry.name} answers here; there is no other model to choose."
    session = choice.store.sessions.open(choice.source)
    chosen = choice.store.agent_choices.of_session(session.id).model
    current = chosen if chosen in entry.models else None
    if not argument:
        others = [name for name in entry.models if name != (current or entry.model)]
        back = f" For the usual one, send /model {DEFAULT}." if current else ""
        return (
            f"{current or entry.model} answers in this conversation. Others: {', '.join(others)}."
            f" To choose one of them, send /model NAME.{back}"
        )
    if argument not in (DEFAULT, *entry.models):
        raise NotFound(
            f"There is no model {clean_for_prompt(argument, 60)!r} here.", hint="/model lists them."
        )
    if choice.store.sessions.is_shared(choice.source):
        choice.require_owner("In a conversation of several people")
    model = None if argument == DEFAULT else argument
    choice.store.agent_choices.set_model(session.id, model, by=choice.actor)
    return f"{model or entry.model} answers in this conversation from now on."
