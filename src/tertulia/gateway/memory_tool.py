"""Actions on memories: the command `/memory`, and the agent's tool.

A person sees and changes their own memories only, in a private chat. What the agent writes after it
has read foreign content is only proposed: a document must not plant a memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from tertulia import aio
from tertulia.agents.base import Tool
from tertulia.core.foreign_content import has_foreign_content, newest_turn
from tertulia.core.memory import MAX_LENGTH, Memory
from tertulia.core.source import Source
from tertulia.core.text.prompt_safe import clean_for_prompt
from tertulia.errors import IllegalMove
from tertulia.gateway.command_arguments import parse_number
from tertulia.records.people import ROLES, Role
from tertulia.store import Store

# The lowest role that has a memory.
ROLE: Final[Role] = "member"
_LISTED: Final = 100
_TURN_WINDOW: Final = 200  # newest messages in which the turn is looked for foreign content
_USAGE: Final = (
    "Send /memory add TEXT, /memory edit N TEXT, /memory forget N, /memory accept N,"
    " or /memory off."
)


def run_command(store: Store, source: Source, argument: str) -> str:
    """Run the command `/memory` with its argument; return the reply."""
    name, _, rest = argument.partition(" ")
    if not name or name == "list":
        return _list(store, source)
    action = _ACTIONS.get(name)
    if action is None:
        raise IllegalMove(f"/memory has no action {clean_for_prompt(name, 20)!r}.", hint=_USAGE)
    return action(store, source, rest.strip())


def tools(store: aio.Store, source: Source, key: str, role: Role) -> tuple[Tool, ...]:
    """Return the memory tool; in a group, and for guests, there is none."""
    if source.chat_type != "dm" or ROLES.index(role) > ROLES.index(ROLE):
        return ()

    async def call(arguments: dict[str, Any]) -> str:
        return await asyncio.to_thread(_run_tool, store.sync, source, key, arguments)

    return (Tool("memory", _DESCRIPTION, _PARAMETERS, call),)


def _run_tool(store: Store, source: Source, key: str, arguments: dict[str, Any]) -> str:
    if arguments["action"] == "list":
        return _list(store, source)
    session = store.sessions.current(key)
    if session is None:
        raise IllegalMove("The conversation has ended.")
    newest = store.transcript(session.id).entries(newest=_TURN_WINDOW)
    memory = store.memories.record(
        session.id,
        str(arguments.get("text") or ""),
        is_proposed=bool(newest) and has_foreign_content(newest_turn(newest)),
    )
    if memory.state == "proposed":
        return f"Proposed: {_line(memory)}"
    return f"Remembered as memory {memory.id}."


def _list(store: Store, source: Source) -> str:
    lines = list(map(_line, store.memories.find(source, limit=_LISTED)))
    if not store.memories.is_on(source):
        lines.insert(0, "The memory is off: nothing is added, and I see none of it.")
    return "\n".join(lines) or f"I remember nothing yet. {_USAGE}"


def _line(memory: Memory) -> str:
    note = " (proposed: /memory accept or forget)" if memory.state == "proposed" else ""
    return f"{memory.id}. {clean_for_prompt(memory.text, MAX_LENGTH)}{note}"


def _add(store: Store, source: Source, text: str) -> str:
    return f"Remembered: {_line(store.memories.add(source, text))}"


def _edit(store: Store, source: Source, rest: str) -> str:
    number, _, text = rest.partition(" ")
    return f"Changed: {_line(store.memories.edit(source, _number(number), text))}"


def _accept(store: Store, source: Source, rest: str) -> str:
    return f"Accepted: {_line(store.memories.accept(source, _number(rest)))}"


def _forget(store: Store, source: Source, rest: str) -> str:
    store.memories.forget(source, _number(rest))
    return f"Memory {rest} is deleted."


def _switch_on(store: Store, source: Source, rest: str) -> str:
    store.memories.switch(source, on=True)
    return "The memory is on."


def _switch_off(store: Store, source: Source, rest: str) -> str:
    store.memories.switch(source, on=False)
    return "The memory is off. What is stored stays; to delete it, send /memory forget N."


def _number(text: str) -> int:
    return parse_number(text, thing="a memory", listed_by="/memory")


_ACTIONS: Final[dict[str, Callable[[Store, Source, str], str]]] = {
    "add": _add,
    "edit": _edit,
    "accept": _accept,
    "forget": _forget,
    "on": _switch_on,
    "off": _switch_off,
}

_DESCRIPTION: Final = (
    "Remember one short line about this person for later conversations: a fact, a preference, a"
    " decision. Only what stays true and what they would want remembered; never passwords."
)
_PARAMETERS: Final = {
    "type": "object",
    "properties": {
        "action": {"type": "string", "enum": ["add", "list"]},
        "text": {"type": "string", "description": f"One line, at most {MAX_LENGTH} characters."},
    },
    "required": ["action"],
    "additionalProperties": False,
}
