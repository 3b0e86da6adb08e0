"""The two tools of an agent: `terminal` starts programs, `process` looks after them.

They are made for one conversation: an agent reaches the programs of that one and no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from tertulia.agents.base import Tool
from tertulia.core.source import Source
from tertulia.errors import ConfigError, Error
from tertulia.processes import messages
from tertulia.processes.registry import PAGE, ProcessRegistry, ProcessStatus
from tertulia.records.people import Role
from tertulia.records.processes import Process

ACTIONS: Final = ("list", "poll", "log", "wait", "kill", "write", "submit")
_FOREGROUND_SECONDS = 60.0
_LOOK_SECONDS = 0.1

TERMINAL: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "command": {"type": "string", "minLength": 1, "description": "A line for the shell."},
        "background": {
            "type": "boolean",
            "description": "Let it run on and answer at once with its id, for the tool process.",
        },
        "workdir": {"type": "string", "description": "The folder to run it in."},
        "timeout": {
            "type": "number",
            "exclusiveMinimum": 0,
            "description": "In the foreground: seconds after which it is ended.",
        },
        "pty": {
            "type": "boolean",
            "description": "Give it a terminal of its own, for programs that ask questions.",
        },
        "check_interval": {
            "type": "number",
            "minimum": 1,
            "maximum": 86_400,
            "description": "In the background: tell this conversation of new output at most every"
            " so many seconds. Its end is told in any case.",
        },
    },
    "required": ["command"],
    "additionalProperties": False,
}

PROCESS: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "action": {
            "type": "string",
            "enum": list(ACTIONS),
            "description": "list: all of this conversation; poll: how it stands, and its newest"
            " output; log: a page of its output; wait: until it ends; kill: end it with all it has"
            " started; write: to its input as it is; submit: the same, with Enter after it.",
        },
        "id": {"type": "string", "description": "Which one; every action but list needs it."},
        "data": {
            "type": "string",
            "description": "What to write. Ctrl-C is \\u0003, ctrl-D \\u0004, with a terminal.",
        },
        "timeout": {"type": "number", "minimum": 0, "description": "Seconds to wait."},
        "before": {"type": "integer", "minimum": 0, "description": "log: the page before this."},
        "after": {"type": "integer", "minimum": 0, "description": "poll, log: what came after."},
        "limit": {"type": "integer", "minimum": 1, "maximum": PAGE, "description": "Characters."},
    },
    "required": ["action"],
    "additionalProperties": False,
}


def tools_for(
    registry: ProcessRegistry, origin: Source | None, key: str, role: Role
) -> tuple[Tool, ...]:
    """The tools for one conversation; none where the role of who writes does not allow it.

    News of the programs are sent to `origin`; without one, they stand in the conversation only.
    """
    if not registry.rules.allows(role):
        return ()
    local_turns = _Desk(registry, origin, key)
    return (
        Tool(
            "terminal",
            "Run a command on the machine of the gateway. In the foreground its output is the"
            " answer; what takes longer belongs into the background.",
            TERMINAL,
            _plainly(local_turns.terminal),
        ),
        Tool(
            "process",
            "Look after programs in the background.",
            PROCESS,
            _plainly(local_turns.process),
        ),
    )


class _Desk:
    """What the tools do for one conversation."""

    def __init__(self, registry: ProcessRegistry, origin: Source | None, key: str) -> None:
        self._registry = registry
        self._origin = origin
        self._key = key

    async def terminal(self, asked: dict[str, Any]) -> str:
        is_background = asked.get("background", False)
        process = await asyncio.to_thread(
            self._registry.spawn,
            asked["command"],
            key=self._key,
            origin=self._origin,
            cwd=asked.get("workdir"),
            pty=asked.get("pty", False),
            check_interval=asked.get("check_interval"),
            is_awaited=not is_background,
        )
        if is_background:
            return f"Started as {process.id}. Its end will be told here."
        return await self._foreground(process, asked.get("timeout", _FOREGROUND_SECONDS))

    async def _foreground(self, process: Process, seconds: float) -> str:
        allowed, note = self._registry.clamped(seconds)
        left = ""
        try:
            seen = await self._wait(process.id, allowed, "")
            is_late = seen.process.is_alive
            if is_late:
                ended = await asyncio.to_thread(self._registry.kill, process.id)
                seen = await asyncio.to_thread(self._registry.poll, ended.id)
        finally:
            # Whoever asked has the output, or has gone; either way nobody asks for it again.
            left = await asyncio.shield(asyncio.to_thread(self._remove, process.id))
        late = (
            f"It was ended after {allowed:g} seconds; what takes longer belongs into the"
            " background."
        )
        notes = (note, late) if is_late else (seen.note,)
        return _told(seen._replace(note=" ".join(filter(None, (*notes, left)))))

    def _remove(self, process_id: str) -> str:
        """What is to be said where a program cannot be cleared away; its output is told first."""
        try:
            self._registry.remove(process_id)
        except Error as problem:
            return str(problem)
        return ""

    async def process(self, asked: dict[str, Any]) -> str:
        action = asked["action"]
        if action == "list":
            found = await asyncio.to_thread(self._registry.find, self._key)
            return "\n".join(map(messages.line, found)) or "There are no programs."
        if not asked.get("id"):
            raise ConfigError(f"{action} needs an id.", hint="See: action list.", field="id")
        if action == "wait":
            seconds, note = self._registry.clamped(asked.get("timeout"))
            await asyncio.to_thread(self._registry.get, asked["id"], key=self._key)
            return _told(await self._wait(asked["id"], seconds, note))
        return await asyncio.to_thread(self._act, action, asked["id"], asked)

    def _act(self, action: str, process_id: str, asked: dict[str, Any]) -> str:
        registry, key = self._registry, self._key
        if action == "poll":
            return _told(registry.poll(process_id, key=key, after=asked.get("after")))
        if action == "log":
            given = {name: asked[name] for name in ("before", "after", "limit") if name in asked}
            return _told(registry.log(process_id, key=key, **given))
        if action == "kill":
            return messages.line(registry.kill(process_id, key=key))
        if action == "write" and not asked.get("data"):
            raise ConfigError("There is nothing to write.", hint="Give data.", field="data")
        act = registry.write if action == "write" else registry.submit
        act(process_id, asked.get("data", ""), key=key)
        return "Written."

    async def _wait(self, process_id: str, seconds: float, note: str) -> ProcessStatus:
        """Wait in short steps, so that it can be interrupted and no thread is held."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        with self._registry.awaiting(process_id):
            while True:
                seen = await asyncio.to_thread(self._registry.wait, process_id, 0, key=self._key)
                if not seen.process.is_alive:
                    return seen
                if loop.time() >= until:
                    told = messages.still_running(seconds, note, was_stopped=False)
                    return seen._replace(note=told)
                await asyncio.sleep(_LOOK_SECONDS)


def _told(seen: ProcessStatus) -> str:
    """What a model reads of a program."""
    process, piece, note = seen
    lines = [messages.line(process)]
    if note:
        lines.append(note)
    if not piece.is_whole:
        lines.append(
            f"Output from position {piece.start} to {piece.end} of {piece.total}; what can be read"
            f" begins at {piece.oldest}. Older: log with before {piece.start}; newer: after"
            f" {piece.end}."
        )
    lines.append(messages.fenced(piece.text) if piece.text else "No output.")
    return "\n".join(lines)


def _plainly(
    call: Callable[[dict[str, Any]], Awaitable[str]],
) -> Callable[[dict[str, Any]], Awaitable[str]]:
    """A mistake of the model is told to it in words; it is no fault of the tool."""

    async def told(asked: dict[str, Any]) -> str:
        try:
            return await call(asked)
        except Error as problem:
            return f"Error: {problem}"

    return told
