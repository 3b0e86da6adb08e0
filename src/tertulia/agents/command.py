"""A program as an agent: one child for each run, JSON lines in and out (`lines.py`).

The child gets the request on its standard input, writes events to its standard output, and is told
there what its tool calls gave. What it writes to its standard error goes to the log. At the end, on
stop and on failure its whole process group is ended: TERM first, KILL shortly after. A grandchild
that makes itself a session of its own is out of reach.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Any, Final, Self

from tertulia.agents import (
    jsonl_protocol,
    tools,
)
from tertulia.agents.base import Delta, Event, Request, Step, ToolResult
from tertulia.agents.cancellation import StopWatcher
from tertulia.agents.jsonl_protocol import Said
from tertulia.agents.sse import LineSplitter
from tertulia.agents.tool_loop import gave_up
from tertulia.agents.transport import (
    Deadline,
    Limits,
    encoded,
)
from tertulia.core.history.formats import Format
from tertulia.core.text.excerpt import excerpt
from tertulia.errors import AgentError, AgentFailed, ConfigError

log = logging.getLogger("tertulia.agents.command")

# What a program may write ahead of us; the rest waits in its pipe.
_MOST_UNREAD: Final = 1_048_576
_STDOUT: Final = 1
_STDERR: Final = 2
_LONGEST_LOG_LINE: Final = 1_000


class CommandAgent:
    """Any program: `CommandAgent(["python", "my_agent.py"])`."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        name: str = "command",
        format: Format = "openai",
        history_tokens: int | None = None,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        max_steps: int = 30,
        tool_seconds: float = 300.0,
        limits: Limits | None = None,
        grace: float = 2.0,
    ) -> None:
        if isinstance(command, str) or not command:
            raise ConfigError(
                f"The command of the agent {name} is {command!r}.",
                hint='Give the program and its arguments as a list: ["python", "my_agent.py"].',
                field="command",
            )
        self.name = name
        self._command = tuple(command)
        self._format: Format = format
        self._history_tokens = history_tokens
        self._cwd = cwd
        self._env = None if env is None else dict(env)
        self._max_steps = max_steps
        self._tool_seconds = tool_seconds
        self._limits = limits or Limits()
        self._grace = grace

    def __repr__(self) -> str:
        # The arguments of a program may hold a secret.
        return f"CommandAgent({self._command[0]!r})"

    async def close(self) -> None:
        """Nothing is kept between runs."""

    async def run(self, request: Request) -> AsyncGenerator[Event, None]:
        """Answer a request, event by event."""
        async with StopWatcher(request.stop) as watch:
            watch.check()
            await request.steer()
            history = await request.history(format=self._format, max_tokens=self._history_tokens)
            async with self._child(watch, request) as child:
                child.tell(jsonl_protocol.asked(request, history))
                async with aclosing(self._exchange(child, request, watch)) as events:
                    async for event in events:
                        yield event

    async def _exchange(
        self, child: _Child, request: Request, watch: StopWatcher
    ) -> AsyncGenerator[Event, None]:
        for _ in range(self._max_steps):
            step: Step | None = None
            while step is None:
                said = await child.next()
                if isinstance(said, Step):
                    step = said
                yield said
            if not step.tool_calls:
                return
            given: list[ToolResult] = []
            found = tools.results(step.tool_calls, request.tools, watch, seconds=self._tool_seconds)
            async with aclosing(found) as results:
                async for result in results:
                    given.append(result)
                    yield result
            child.tell(jsonl_protocol.answered(given, await request.steer()))
        for event in gave_up(self._max_steps):
            yield event

    def _child(self, watch: StopWatcher, request: Request) -> _Child:
        return _Child(
            self._command,
            watch,
            title=f"The program {os.path.basename(self._command[0])!r}",
            session_id=request.session_id,
            limits=self._limits,
            grace=self._grace,
            cwd=self._cwd,
            env=self._env,
        )


class _Pipes(asyncio.SubprocessProtocol):
    """The ends of a program's pipes that are on this side.

    asyncio's own streams wait with the news of an exit until every pipe was read to its end, which
    never comes while a program floods one, or has left a pipe to somebody else.
    """

    def __init__(self, complain: Callable[[list[str]], None]) -> None:
        self._complain = complain
        self._complaints = LineSplitter()
        self._output = bytearray()
        self._has_news = asyncio.Event()
        self._is_paused = False
        self.is_over = False
        self.has_exited = asyncio.Event()
        self.has_complained = asyncio.Event()
        self.is_lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)
        self.transport = transport

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == _STDERR:
            self._complain(self._complaints.feed(data))
            return
        self._output += data
        self._has_news.set()
        if len(self._output) > _MOST_UNREAD and not self._is_paused:
            self._is_paused = True
            self._reading().pause_reading()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == _STDERR:
            self._complain(self._complaints.rest())
            self.has_complained.set()
        elif fd == _STDOUT:
            self.is_over = True
            self._has_news.set()

    def process_exited(self) -> None:
        self.has_exited.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost.set()

    async def read(self) -> bytes:
        """What was written since; nothing at the end."""
        await self._has_news.wait()
        found, self._output = bytes(self._output), bytearray()
        if not self.is_over:
            self._has_news.clear()
        if self._is_paused:
            self._is_paused = False
            self._reading().resume_reading()
        return found

    def write(self, line: bytes) -> None:
        """Nobody waits until it is read: a program that only writes would wait for us in turn."""
        pipe = self.transport.get_pipe_transport(0)
        if isinstance(pipe, asyncio.WriteTransport) and not pipe.is_closing():
            pipe.write(line)

    def _reading(self) -> asyncio.ReadTransport:
        pipe = self.transport.get_pipe_transport(_STDOUT)
        assert isinstance(pipe, asyncio.ReadTransport)
        return pipe


class _Child:
    """The program during one run."""

    def __init__(
        self,
        command: Sequence[str],
        watch: StopWatcher,
        *,
        title: str,
        session_id: str,
        limits: Limits,
        grace: float,
        cwd: str | os.PathLike[str] | None,
        env: Mapping[str, str] | None,
    ) -> None:
        self._command = command
        self._watch = watch
        self._title = title
        self._session_id = session_id
        self._limits = limits
        self._grace = grace
        self._cwd = cwd
        self._env = env
        self._lines = LineSplitter()
        self._waiting: list[str] = []
        self._size = 0
        self._shown = ""
        self._last_complaint = ""

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        try:
            transport, self._pipes = await loop.subprocess_exec(
                lambda: _Pipes(self._log), *self._command,
                cwd=self._cwd, env=self._env, start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as problem:
            raise AgentFailed(
                f"{self._title} cannot be started: {problem}",
                hint="Look at the command of the agent, and whether it can be run from here.",
            ) from problem
        self._transport = transport
        self._patience = Deadline(self._limits)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(problem, AgentError) and self._shown:
            problem.data.setdefault("partial", self._shown)
        ending = asyncio.ensure_future(self._end(is_calm=kind is None))
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            # Whoever cancels may go on only when the program is gone.
            await asyncio.wait([ending])
            raise

    def tell(self, message: dict[str, Any]) -> None:
        """Write a line. From then on it is the program's turn, and its time."""
        self._pipes.write(encoded(message) + b"\n")
        self._patience = Deadline(self._limits)

    async def next(self) -> Said:
        """The next event the program writes."""
        while not self._waiting:
            self._waiting = [line for line in await self._more() if line.strip()]
        said = jsonl_protocol.read(self._waiting.pop(0), self._title)
        if isinstance(said, Delta):
            self._shown += said.text
        elif isinstance(said, Step):
            self._shown = ""
        return said

    async def _more(self) -> list[str]:
        try:
            chunk = await self._watch.wait(self._pipes.read(), self._patience.left())
        except TimeoutError:
            raise self._patience.late(self._title) from None
        if chunk:
            self._patience.has_begun = True
            self._size += len(chunk)
            if self._size > self._limits.size:
                raise AgentFailed(
                    f"{self._title} wrote more than {self._limits.size} bytes.",
                    hint="It does not come to an end; mend it, or raise the limit.",
                )
            return self._lines.feed(chunk)
        if left := self._lines.rest():
            return left
        raise await self._gone()

    async def _gone(self) -> AgentFailed:
        """The error for a program that has nothing more to say, and has not answered."""
        with contextlib.suppress(TimeoutError):
            await self._watch.wait(_both(self._pipes), self._grace)
        code = self._transport.get_returncode()
        ended = "closed its output" if code is None else f"ended with {code}"
        said = f": {self._last_complaint}" if self._last_complaint else "."
        return AgentFailed(
            f"{self._title} {ended} before it had answered{said}",
            hint="Run it by hand with the same input; what it complained of is in the log.",
            exit_code=code,
        )

    def _log(self, complaints: list[str]) -> None:
        for line in complaints:
            if shown := excerpt(line, _LONGEST_LOG_LINE):
                self._last_complaint = shown
                log.info("%s %s: %s", self._session_id, os.path.basename(self._command[0]), shown)

    async def _end(self, *, is_calm: bool) -> None:
        pipes = self._pipes
        if (stdin := self._transport.get_pipe_transport(0)) is not None:
            stdin.close()
        if not is_calm:
            _signal(self._transport, is_last=False)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(pipes.has_exited.wait(), self._grace)
        # Also where it has ended itself: what it left behind in its group ends with it.
        _signal(self._transport, is_last=True)
        await pipes.has_exited.wait()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(pipes.has_complained.wait(), self._grace)
        self._transport.close()
        await pipes.is_lost.wait()


async def _both(pipes: _Pipes) -> None:
    await pipes.has_exited.wait()
    await pipes.has_complained.wait()


def _signal(transport: asyncio.SubprocessTransport, *, is_last: bool) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            transport.kill()
        else:
            os.killpg(transport.get_pid(), signal.SIGKILL if is_last else signal.SIGTERM)
