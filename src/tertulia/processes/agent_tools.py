"""The two process tools of an agent: `terminal` starts programs, `process` controls them.

They belong to one conversation: an agent reaches only the programs of that conversation.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from tertulia.agents.base import Tool
from tertulia.core.source import Source
from tertulia.errors import ConfigError, Error
from tertulia.processes import messages
from tertulia.processes.registry import PAGE_LENGTH, ProcessRegistry, ProcessStatus
from tertulia.records.people import Role
from tertulia.records.processes import Process

ACTIONS: Final = ("list", "poll", "log", "wait", "kill", "write", "submit")
_FOREGROUND_SECONDS = 60.0
_POLL_SECONDS = 0.1

TERMINAL: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "command": {
            "type": "string",
            "minLength": 1,
            "description": "A command line for the shell.",
        },
        "background": {
            "type": "boolean",
            "description": "Return at once with the id of the program, for the tool process.",
        },
        "workdir": {"type": "string", "description": "The folder to run the command in."},
        "timeout": {
            "type": "number",
            "exclusiveMinimum": 0,
            "description": "In the foreground: seconds after which the program is killed.",
        },
        "pty": {
            "type": "boolean",
            "description": "Run the program in a terminal, for programs that ask questions.",
        },
        "check_interval": {
            "type": "number",
            "minimum": 1,
            "maximum": 86_400,
            "description": "In the background: minimum seconds between two reports of new output"
            " to this conversation. The end is always reported.",
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
            "description": "list: all programs of this conversation; poll: its state and newest"
            " output; log: a page of its output; wait: until it ends; kill: end it with all"
            " processes it started; write: send data to its input; submit: send data and Enter.",
        },
        "id": {"type": "string", "description": "The id of a program; required except for list."},
        "data": {
            "type": "string",
            "description": "Data to write. In a terminal, Ctrl-C is \\u0003 and Ctrl-D \\u0004.",
        },
        "timeout": {"type": "number", "minimum": 0, "description": "Seconds to wait."},
        "before": {
            "type": "integer",
            "minimum": 0,
            "description": "log: the page before this position.",
        },
        "after": {
            "type": "integer",
            "minimum": 0,
            "description": "poll, log: output after this position.",
        },
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": PAGE_LENGTH,
            "description": "Characters.",
        },
    },
    "required": ["action"],
    "additionalProperties": False,
}


def tools_for(
    registry: ProcessRegistry, origin: Source | None, key: str, role: Role
) -> tuple[Tool, ...]:
    """Return the tools for one conversation; none if the role of the person is not allowed.

    Notices about the programs are sent to `origin`; without it, they are only written to the
    transcript.
    """
    if not registry.settings.allows(role):
        return ()
    process_tools = _ProcessTools(registry, origin, key)
    return (
        Tool(
            "terminal",
            "Run a command on the machine of the gateway. In the foreground the result is its"
            " output; run longer commands in the background.",
            TERMINAL,
            _with_error_text(process_tools.terminal),
        ),
        Tool(
            "process",
            "Control programs in the background.",
            PROCESS,
            _with_error_text(process_tools.process),
        ),
    )


class _ProcessTools:
    """The process tools of one conversation."""

    def __init__(self, registry: ProcessRegistry, origin: Source | None, key: str) -> None:
        self._registry = registry
        self._origin = origin
        self._key = key

    async def terminal(self, arguments: dict[str, Any]) -> str:
        """Run a command; return its id in the background, its output in the foreground."""
        is_background = arguments.get("background", False)
        spawning = asyncio.ensure_future(
            asyncio.to_thread(
                self._registry.spawn,
                arguments["command"],
                key=self._key,
                origin=self._origin,
                cwd=arguments.get("workdir"),
                pty=arguments.get("pty", False),
                check_interval=arguments.get("check_interval"),
                is_awaited=not is_background,
            )
        )
        try:
            process = await asyncio.shield(spawning)
        except asyncio.CancelledError:
            if not is_background:
                await asyncio.shield(asyncio.ensure_future(self._remove_started(spawning)))
            raise
        if is_background:
            return f"Started as {process.id}. Its end will be reported here."
        return await self._wait_in_foreground(
            process, arguments.get("timeout", _FOREGROUND_SECONDS)
        )

    async def _wait_in_foreground(self, process: Process, seconds: float) -> str:
        """Wait for a program, kill it if it takes too long, and remove it; return its output."""
        allowed, note = self._registry.clamp_wait(seconds)
        try:
            status = await self._wait(process.id, allowed, "")
            is_late = status.process.is_alive
            if is_late:
                ended = await asyncio.to_thread(self._registry.kill, process.id)
                status = await asyncio.to_thread(self._registry.poll, ended.id)
        finally:
            # The caller has the output, or is gone: nobody will read it again.
            removal_error = await asyncio.shield(asyncio.to_thread(self._remove, process.id))
        timeout_note = (
            f"It was ended after {allowed:g} seconds; run longer commands in the background."
        )
        notes = [note, timeout_note] if is_late else [status.note]
        text = " ".join(filter(None, [*notes, removal_error]))
        return _format_status(status._replace(note=text))

    async def _remove_started(self, spawning: Awaitable[Process]) -> None:
        """Remove a program whose caller is gone, as soon as it has started."""
        with contextlib.suppress(Error):  # it could not be started
            process = await spawning
            await asyncio.to_thread(self._remove, process.id)

    def _remove(self, process_id: str) -> str:
        """Remove a program; return the error as text, so that its output is not lost with it."""
        try:
            self._registry.remove(process_id)
        except Error as problem:
            return str(problem)
        return ""

    async def process(self, arguments: dict[str, Any]) -> str:
        """Run one action of the tool `process` and return its result for the model."""
        action = arguments["action"]
        if action == "list":
            processes = await asyncio.to_thread(self._registry.find, self._key)
            return "\n".join(map(messages.format_line, processes)) or "There are no programs."
        if not arguments.get("id"):
            raise ConfigError(f"{action} needs an id.", hint="See: action list.", field="id")
        if action == "wait":
            seconds, note = self._registry.clamp_wait(arguments.get("timeout"))
            await asyncio.to_thread(self._registry.get, arguments["id"], key=self._key)
            return _format_status(await self._wait(arguments["id"], seconds, note))
        return await asyncio.to_thread(
            self._run_blocking_action, action, arguments["id"], arguments
        )

    def _run_blocking_action(self, action: str, process_id: str, arguments: dict[str, Any]) -> str:
        registry, key = self._registry, self._key
        if action == "poll":
            status = registry.poll(process_id, key=key, after=arguments.get("after"))
            return _format_status(status)
        if action == "log":
            names = [name for name in ("before", "after", "limit") if name in arguments]
            page = {name: arguments[name] for name in names}
            return _format_status(registry.log(process_id, key=key, **page))
        if action == "kill":
            return messages.format_line(registry.kill(process_id, key=key))
        if action == "write" and not arguments.get("data"):
            raise ConfigError("There is nothing to write.", hint="Give data.", field="data")
        send = registry.write if action == "write" else registry.submit
        send(process_id, arguments.get("data", ""), key=key)
        return "Written."

    async def _wait(self, process_id: str, seconds: float, note: str) -> ProcessStatus:
        """Wait until a program has ended, or `seconds` have passed; return its status.

        By polling: such a wait can be cancelled, and blocks no thread.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        with self._registry.without_end_notice(process_id):
            while True:
                status = await asyncio.to_thread(self._registry.wait, process_id, 0, key=self._key)
                if not status.process.is_alive:
                    return status
                if loop.time() >= until:
                    note = messages.still_running_note(seconds, note, was_stopped=False)
                    return status._replace(note=note)
                await asyncio.sleep(_POLL_SECONDS)


def _format_status(status: ProcessStatus) -> str:
    """Return the text about a program for the model."""
    process, chunk, note = status
    lines = [messages.format_line(process)]
    if note:
        lines.append(note)
    if not chunk.is_whole:
        lines.append(
            f"Output from position {chunk.start} to {chunk.end} of {chunk.total}; readable from"
            f" {chunk.oldest}. Older: log with before {chunk.start}; newer: after {chunk.end}."
        )
    lines.append(messages.fence(chunk.text) if chunk.text else "No output.")
    return "\n".join(lines)


def _with_error_text(
    call: Callable[[dict[str, Any]], Awaitable[str]],
) -> Callable[[dict[str, Any]], Awaitable[str]]:
    """Return a call whose errors become its result: the model made a mistake, not the tool."""

    async def call_tool(arguments: dict[str, Any]) -> str:
        try:
            return await call(arguments)
        except Error as problem:
            return f"Error: {problem}"

    return call_tool
