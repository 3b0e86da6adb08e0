"""One MCP server: a task that connects, lists the tools, and connects again when it fails.

Nobody waits for a server: neither the start of the gateway nor a turn. Its tools stay offered while
it is away, and a call then reports the outage. The program of a server that is not used for a while
is stopped; the next call starts it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, Literal

from tertulia.core.backoff import JITTER, Backoff
from tertulia.errors import ConfigError, Error
from tertulia.mcp.definitions import ToolList
from tertulia.mcp.leftovers import ProcessNotes
from tertulia.mcp.protocol import (
    CallLost,
    McpSession,
    ServerRefused,
    ServerUnavailable,
    negotiate,
)
from tertulia.mcp.settings import McpServerSettings
from tertulia.mcp.stdio import StdioConnection
from tertulia.mcp.streamable_http import HttpConnection

log = logging.getLogger("tertulia.mcp")

State = Literal["starting", "ready", "failed", "stopped"]
OnTools = Callable[[str, ToolList], Awaitable[None]]

IDLE_SECONDS: Final = 15 * 60.0
_PROBE_SECONDS: Final = 10.0
_START_SECONDS: Final = 30.0
_BACKOFF: Final = Backoff(first=1, longest=300)

AnyConnection = StdioConnection | HttpConnection


async def connect(
    name: str, settings: McpServerSettings, environ: Mapping[str, str]
) -> AnyConnection:
    """Start the program of a server, or open a connection to its address.

    Raise `ServerUnavailable`, and `ConfigError` if a variable is not set.
    """
    if settings.url is not None:
        return await HttpConnection.open(settings.url, settings.headers)
    return await StdioConnection.start(name, settings.arguments, settings.environment(environ))


class ServerClient:
    """The connection to one server, for all conversations of this node."""

    def __init__(
        self,
        name: str,
        settings: McpServerSettings,
        *,
        on_tools: OnTools,
        notes: ProcessNotes | None = None,
        environ: Mapping[str, str] | None = None,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self.name = name
        self.settings = settings
        self._on_tools = on_tools
        self._notes = notes
        self._environ = os.environ if environ is None else environ
        self._idle_seconds = idle_seconds
        self._session: McpSession | None = None
        self._changed = asyncio.Event()
        self._wanted = asyncio.Event()
        self._wanted.set()  # the definitions are compared once at the start
        self._ready = asyncio.Event()
        self._begun_calls = 0
        self._running_calls = 0
        self._restart = asyncio.Event()
        self.state: State = "starting"
        self.problem = ""
        self.revision = ""
        self._was_ready = False

    async def run(self) -> None:
        """Keep the server connected until cancelled; no failure ends this."""
        attempts = 0
        while True:
            await self._wanted.wait()
            self.state = "starting"
            try:
                await self._serve()
                attempts = 0
                continue
            except (ServerUnavailable, ServerRefused, CallLost, ConfigError) as problem:
                self._note_failure(str(problem))
            except Error as problem:
                self._note_failure(problem.message)
            if self._was_ready:
                attempts = 0
            attempts += 1
            seconds = _BACKOFF.delay(attempts, JITTER.random())
            log.warning(
                "MCP server %s failed, connecting again in %.0f s: %s",
                self.name, seconds, self.problem,
            )  # fmt: skip
            await _wait(self._restart, seconds)
            self._restart.clear()

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call a tool, once; raise `ServerUnavailable`, `CallLost` or `ServerRefused`."""
        if self.state == "failed":
            raise ServerUnavailable(self.problem)
        self._begun_calls += 1
        self._running_calls += 1
        try:
            session = await self._require_session()
            return await session.call_tool(tool, arguments, seconds=self.settings.call_seconds)
        finally:
            self._running_calls -= 1

    def restart(self) -> None:
        """Connect again at once, instead of after the pause."""
        self._restart.set()

    async def _require_session(self) -> McpSession:
        """Start the program if it is stopped; return the session, or raise `ServerUnavailable`."""
        self._wanted.set()
        if not await _wait(self._ready, _START_SECONDS):
            raise ServerUnavailable(self.problem or "it has not started yet")
        if self._session is None:
            raise ServerUnavailable(self.problem or "it has just ended")
        return self._session

    async def _serve(self) -> None:
        """Connect, and return when the program was stopped because nobody uses it."""
        self._was_ready = False
        connection = await self._connect()
        try:
            connection.on_changed = self._changed.set
            session = await negotiate(
                connection, probe_seconds=_PROBE_SECONDS, seconds=_START_SECONDS
            )
            await self._list_tools(session)
            log.info("MCP server %s is %s, %s", self.name, session.server, session.revision)
            self._session, self.state, self.problem = session, "ready", ""
            self.revision = session.revision
            self._was_ready = True
            self._ready.set()
            await self._watch(session, connection)
        finally:
            self._session = None
            self._ready.clear()
            try:
                await _finish(connection.close())
            finally:
                if self._notes is not None:
                    self._notes.forget(self.name)

    async def _connect(self) -> AnyConnection:
        connection = await connect(self.name, self.settings, self._environ)
        if self._notes is not None and isinstance(connection, StdioConnection):
            self._notes.remember(self.name, connection.pid)
        return connection

    async def _list_tools(self, session: McpSession) -> None:
        self._changed.clear()
        tools = await session.list_tools(seconds=_START_SECONDS)
        await self._on_tools(self.name, tools)

    async def _watch(self, session: McpSession, connection: AnyConnection) -> None:
        """Return when the program was idle for long enough; list the tools when they change.

        Raise `ServerUnavailable` when the connection fails.
        """
        closed = asyncio.create_task(connection.wait_closed())
        try:
            while True:
                begun_calls = self._begun_calls
                changed = asyncio.create_task(self._changed.wait())
                try:
                    await asyncio.wait(
                        {closed, changed},
                        timeout=self._idle_seconds,
                        return_when=asyncio.FIRST_COMPLETED,
                    )
                finally:
                    changed.cancel()
                if closed.done():
                    raise ServerUnavailable(connection.problem)
                if self._changed.is_set():
                    await self._list_tools(session)
                elif (
                    self._begun_calls == begun_calls
                    and not self._running_calls
                    and self.settings.url is None
                ):
                    self._wanted.clear()
                    self.state = "stopped"
                    return
        finally:
            closed.cancel()

    def _note_failure(self, problem: str) -> None:
        self.state, self.problem = "failed", problem


async def _finish(work: Coroutine[Any, Any, None]) -> None:
    """Wait until a coroutine is done, also if this task is cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


async def _wait(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event; return False if it has not come after `seconds`."""
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False
    return True
