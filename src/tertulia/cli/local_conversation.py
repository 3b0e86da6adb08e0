"""The conversations at the terminal of this machine: one for each agent that may answer there."""

from __future__ import annotations

from tertulia.core.source import Source
from tertulia.store import Store


def current_key(store: Store) -> str:
    """Return the key of the conversation that the next message belongs to."""
    return store.sessions.conversation(store.agent_choices.resolve(Source.local()))


def all_keys(store: Store) -> list[str]:
    """Return the keys of all conversations: `/agent` may change the current one while work runs."""
    terminal = Source.local()
    agents = (None, *store.settings.agents)
    return [store.sessions.conversation(terminal.with_fields(agent=agent)) for agent in agents]
