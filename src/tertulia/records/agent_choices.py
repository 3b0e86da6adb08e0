"""The agent of a chat, the model of a session, and the prompt that the session began with.

`/agent` chooses the agent of a chat, `/model` the model of a session. If nobody has chosen an
agent, the routes of the configuration select it. The text of an agent's prompt files is stored with
the first turn of a session, so that the beginning of its prompt stays the same when a file changes.
A source names its agent: see decision 0036.
"""

from __future__ import annotations

import hashlib

import msgspec

from tertulia.core import keys
from tertulia.core.agent_route import decide_agent
from tertulia.core.arguments import checks_arguments
from tertulia.core.source import Source
from tertulia.core.text.storable import storable
from tertulia.errors import NotFound
from tertulia.records import session_rows
from tertulia.records.store_context import StoreContext
from tertulia.storage.base import Transaction
from tertulia.storage.rows import to_micros


class SessionAgent(msgspec.Struct, frozen=True):
    """The model that was chosen for a session, and the text of the prompt files it began with."""

    model: str | None = None
    prompt: str | None = None


@checks_arguments
class AgentChoices:
    """The choices of agents and models in a store."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context
        self._db = context.db

    def resolve(self, source: Source) -> Source:
        """Return the source with the agent that answers there: the chosen one, else the routed one.

        A source that names its agent is returned as it is.
        """
        if source.agent or not self._context.settings.agents:
            return source
        return self._db.read(lambda tx: resolve_agent(tx, self._context, source))

    def choose(self, source: Source, agent: str, *, by: str) -> None:
        """Let an agent answer in the chat of a source from now on; raise `NotFound` for no agent.

        Its other sessions there stay: choosing an agent again continues its own.
        """
        settings = self._context.settings
        if agent not in (settings.agent, *settings.agents):
            raise NotFound(f"There is no agent {agent!r}.", hint="/agent lists them.")
        params = {
            "chat": keys.chat_key(source),
            "agent": agent,
            "chosen_by": storable(by),
            "now": to_micros(self._context.clock.now()),
        }
        self._db.write(lambda tx: tx.run("agent_choice_put", params))

    def of_session(self, session_id: str) -> SessionAgent:
        """Return the model that was chosen for a session, and its stored prompt."""
        row = self._db.read(lambda tx: tx.one("session_agent_get", {"id": session_id}))
        return SessionAgent() if row is None else SessionAgent(*row)

    def set_model(self, session_id: str, model: str | None, *, by: str | None = None) -> None:
        """Set the model of a session from now on; None sets the default model of its agent.

        `by` is who asked for it. Raise `NotFound` if there is no such session.
        """
        now = self._context.clock.now()

        def work(tx: Transaction) -> None:
            row = session_rows.require(tx, session_id)
            tx.run("session_model_put", {"session": row.ref, "model": model})
            session_rows.record_event(tx, row.ref, now, "model", {"model": model}, by=by)

        self._db.write(work)

    def begin_prompt(self, session_id: str, text: str) -> str:
        """Store the prompt of a session unless it has one; return the one it has.

        Raise `NotFound` if there is no such session.
        """
        stored = storable(text)
        digest = hashlib.sha256(stored.encode()).hexdigest()

        def work(tx: Transaction) -> str:
            row = session_rows.require(tx, session_id)
            tx.run("prompt_text_put", {"hash": digest, "text": stored})
            tx.run("session_prompt_put", {"session": row.ref, "prompt": digest})
            _, prompt = tx.one("session_agent_get", {"id": session_id}) or (None, None)
            return str(prompt)

        return self._db.write(work)


def resolve_agent(tx: Transaction, context: StoreContext, source: Source) -> Source:
    """Return the source with the agent that answers there, within a transaction."""
    settings = context.settings
    if source.agent or not settings.agents:
        return source
    row = tx.one("agent_choice_get", {"chat": keys.chat_key(source)})
    name = decide_agent(
        source,
        chosen=None if row is None else row[0],
        routes=settings.routes,
        main=settings.agent,
        others=settings.agents,
    )
    return source if name == settings.agent else source.with_fields(agent=name)


def copy_to_fork(tx: Transaction, session: int, fork: int) -> None:
    """Give a fork the model and the prompt of the session it was forked from."""
    tx.run("session_agent_copy", {"session": session, "to": fork})


def delete_of_session(tx: Transaction, session: int) -> None:
    """Delete the model of a session, and its stored prompt if no other session uses it."""
    row = tx.one("session_agents_delete", {"session": session})
    if row is not None and row[0] is not None:
        tx.run("prompt_text_delete_unused", {"hash": row[0]})
