"""The terminal as a platform of `chat` and `run`: its adapter, input history and greeting."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from tertulia.agents.agent_options import CommandAgentOptions, ModelOptions
from tertulia.cli import locations, output
from tertulia.cli.options import CommandOptions
from tertulia.config.schema import AccountSection, AgentSection, Config
from tertulia.core.message import ASSISTANT, text_of
from tertulia.core.source import LOCAL, Source
from tertulia.core.text.prompt_safe import clean_for_prompt
from tertulia.storage.connect import public_name

if TYPE_CHECKING:
    from tertulia import aio
    from tertulia.platforms.terminal import TerminalAdapter
    from tertulia.store import Store

_POLL_SECONDS = 0.02
_ANSWER_SEARCH_LIMIT = 200  # newest messages among which the answer to the last one is searched


def terminal_adapter(config: Config, store: aio.Store) -> TerminalAdapter:
    """Return the adapter that reads from and prints to this terminal."""
    from tertulia.config.build import build_adapter
    from tertulia.platforms.terminal import TerminalAdapter

    terminal = build_adapter(
        AccountSection(LOCAL, "", config.platform(LOCAL)), locations.platforms_folder()
    )
    assert isinstance(terminal, TerminalAdapter)
    terminal.settled = _answer_waiter(store)
    return terminal


async def print_greeting(options: CommandOptions, store: aio.Store, config: Config) -> None:
    """Print which agent answers and where the conversation is stored, if this is a terminal."""
    if not sys.stdin.isatty():
        return
    agent = config.agent
    name, location = _agent_name(agent), public_name(store.sync.path)
    output.print_text(options, f"You talk with {name}; the conversation is stored in {location}.")
    if agent.kind == "parrot":
        output.print_text(
            options,
            "The parrot is not a model: it shows the input that a model would get. To use a model:"
            " tertulia config init",
        )
    output.print_text(options, await asyncio.to_thread(_describe_conversation, store.sync))
    output.print_text(
        options, "/help lists the commands, alt-Enter starts a new line, ctrl-D leaves.\n"
    )


async def has_unfinished_work(store: aio.Store) -> bool:
    """Return whether a message typed here is unanswered or an answer is not printed yet.

    The states are queried in the order in which work moves through them, so that an item that
    moves on between two queries is found by a later one.
    """
    key = await asyncio.to_thread(store.sync.sessions.conversation, Source.local())
    for item_state in ("waiting", "taken"):
        if (await store.inbox.find(key=key, state=item_state, limit=1)).items:
            return True
    for state in ("waiting", "sending"):
        deliveries = (await store.outbox.find(state=state, limit=50)).items
        if any(delivery.platform == LOCAL for delivery in deliveries):
            return True
    return False


def _answer_waiter(store: aio.Store) -> Callable[[str | None], Awaitable[str | None]]:
    """Return a function that waits until everything is answered and returns the last answer."""

    async def wait(message_id: str | None) -> str | None:
        while await has_unfinished_work(store):  # noqa: ASYNC110  other nodes may do the work, too
            await asyncio.sleep(_POLL_SECONDS)
        return await asyncio.to_thread(_get_answer, store.sync, message_id) if message_id else None

    return wait


def _get_answer(store: Store, message_id: str) -> str | None:
    """Return the answer to a message that was just typed; None if it was a command."""
    session = store.sessions.current(store.sessions.conversation(Source.local()))
    if session is None:
        return None
    newest = store.transcript(session.id).entries(newest=_ANSWER_SEARCH_LIMIT)
    turns = {message.turn for message in newest if message.body.get("message_id") == message_id}
    answers = [
        text_of(message.body)
        for message in newest
        if message.turn in turns and message.role == ASSISTANT
    ]
    return answers[-1] if answers else None


def _agent_name(agent: AgentSection) -> str:
    if isinstance(agent, ModelOptions):
        return f"{agent.model} ({agent.kind})"
    if isinstance(agent, CommandAgentOptions):
        return f"the program {clean_for_prompt(os.path.basename(agent.command[0]), 60)}"
    return "an agent over HTTP" if agent.kind == "http" else f"the {agent.kind}"


def _describe_conversation(store: Store) -> str:
    sessions = store.sessions
    session = sessions.current(sessions.conversation(Source.local()))
    if session is None:
        return "This is a new conversation."
    title = session.title or sessions.suggest_title(session.id)
    name = f'"{clean_for_prompt(title, 60)}"' if title else session.id
    count = store.transcript(session.id).count()
    return f"We go on with {name}: {'1 message' if count == 1 else f'{count} messages'} so far."
