"""Agent that starts a program for each run and exchanges JSON Lines with it (`jsonl_protocol.py`).

The program gets the request, and later the results of its tool calls, on its standard input, and
writes events to its standard output. Its standard error goes to the log. At the end, on stop and on
failure its whole process group is terminated: SIGTERM first, SIGKILL shortly after. A descendant
that starts a session of its own (setsid) is not reached.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Any, Final, Self

from tertulia.agents import jsonl_protocol, tools
from tertulia.agents.agent_options import CommandAgentOptions
from tertulia.agents.base import Delta, Event, Request, Step, ToolResult
from tertulia.agents.cancellation import StopWatcher
from tertulia.agents.jsonl_protocol import ProtocolEvent
from tertulia.agents.pace import Pace
from tertulia.agents.sse import LineSplitter
from tertulia.agents.tool_loop import step_limit_events
from tertulia.agents.transport import Deadline, Limits, encode_body
from tertulia.core.text.excerpt import log_line
from tertulia.core.text.text_buffer import TextBuffer
from tertulia.errors import AgentError, AgentFailed

log = logging.getLogger("tertulia.agents.command")

# Bytes of output that are buffered before reading pauses; the rest stays in the pipe.
_MAX_BUFFERED: Final = 1_048_576
_STDOUT: Final = 1
_STDERR: Final = 2
_MAX_LOG_LINE: Final = 1_000


class CommandAgent:
    """Agent that runs a program for each request."""

    def __init__(self, options: CommandAgentOptions) -> None:
        self.name = options.kind
        self._options = options

    def __repr__(self) -> str:
        # The arguments of a program may contain a secret.
        return f"CommandAgent({self._options.command[0]!r})"

    async def close(self) -> None:
        """Do nothing: no resource is held between runs."""

    async def run(self, request: Request) -> AsyncGenerator[Event, None]:
        """Answer a request; yield events."""
        async with StopWatcher(request.stop) as watcher:
            watcher.check()
            await request.steer()
            options = self._options
            history = await request.history(
                format=options.format, max_tokens=options.history_tokens
            )
            async with self._child(watcher, request) as child:
                child.send(jsonl_protocol.encode_request(request, history))
                async with aclosing(self._run_steps(child, request, watcher)) as events:
                    async for event in events:
                        yield event

    async def _run_steps(
        self, child: _Child, request: Request, watcher: StopWatcher
    ) -> AsyncGenerator[Event, None]:
        """Yield the events of the program, and the results of its tool calls."""
        for _ in range(self._options.max_steps):
            step: Step | None = None
            while step is None:
                event = await child.next_event()
                if isinstance(event, Step):
                    step = event
                yield event
            if not step.tool_calls:
                return
            results: list[ToolResult] = []
            running_tools = tools.run_tools(
                step.tool_calls, request.tools, watcher, seconds=self._options.tool_seconds
            )
            async with aclosing(running_tools):
                async for result in running_tools:
                    results.append(result)
                    yield result
            child.send(jsonl_protocol.encode_tool_results(results, await request.steer()))
        for last_event in step_limit_events(self._options.max_steps):
            yield last_event

    def _child(self, watcher: StopWatcher, request: Request) -> _Child:
        options = self._options
        return _Child(
            tuple(options.command),
            watcher,
            title=f"The program {os.path.basename(options.command[0])!r}",
            session_id=request.session_id,
            limits=options.limits,
            grace=options.grace_seconds,
            cwd=options.folder,
            env={**os.environ, **options.variables} if options.variables else None,
        )


class _Pipes(asyncio.SubprocessProtocol):
    """Our ends of the pipes of a program; `on_stderr` gets each line of its standard error.

    asyncio's own streams report an exit only after every pipe was read to its end. That never
    happens while a program floods a pipe, or if another process has inherited the pipe.
    """

    def __init__(self, on_stderr: Callable[[list[str]], None]) -> None:
        self._on_stderr = on_stderr
        self._stderr_lines = LineSplitter()
        self._output = bytearray()
        self._has_output = asyncio.Event()
        self._is_paused = False
        self.is_stdout_closed = False
        self.has_exited = asyncio.Event()
        self.stderr_closed = asyncio.Event()
        self.connection_closed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)
        self.transport = transport

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == _STDERR:
            self._on_stderr(self._stderr_lines.feed(data))
            return
        self._output += data
        self._has_output.set()
        if len(self._output) > _MAX_BUFFERED and not self._is_paused:
            self._is_paused = True
            self._stdout().pause_reading()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == _STDERR:
            self._on_stderr(self._stderr_lines.rest())
            self.stderr_closed.set()
        elif fd == _STDOUT:
            self.is_stdout_closed = True
            self._has_output.set()

    def process_exited(self) -> None:
        self.has_exited.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.connection_closed.set()

    async def read(self) -> bytes:
        """Wait for output and return all of it; return nothing at its end."""
        await self._has_output.wait()
        output, self._output = bytes(self._output), bytearray()
        if not self.is_stdout_closed:
            self._has_output.clear()
        if self._is_paused:
            self._is_paused = False
            self._stdout().resume_reading()
        return output

    def write(self, line: bytes) -> None:
        """Write a line without waiting until the program reads it.

        Waiting could deadlock: a program that only writes waits until we read.
        """
        pipe = self.transport.get_pipe_transport(0)
        if isinstance(pipe, asyncio.WriteTransport) and not pipe.is_closing():
            pipe.write(line)

    def _stdout(self) -> asyncio.ReadTransport:
        pipe = self.transport.get_pipe_transport(_STDOUT)
        assert isinstance(pipe, asyncio.ReadTransport)
        return pipe


class _Child:
    """The program during one run."""

    def __init__(
        self,
        command: Sequence[str],
        watcher: StopWatcher,
        *,
        title: str,
        session_id: str,
        limits: Limits,
        grace: float,
        cwd: str | os.PathLike[str] | None,
        env: Mapping[str, str] | None,
    ) -> None:
        self._command = command
        self._watcher = watcher
        self._title = title
        self._session_id = session_id
        self._limits = limits
        self._grace = grace
        self._cwd = cwd
        self._env = env
        self._lines = LineSplitter()
        self._pending: deque[str] = deque()
        self._pace = Pace()
        self._size = 0
        self._streamed_text = TextBuffer()
        self._last_stderr_line = ""

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        try:
            transport, self._pipes = await loop.subprocess_exec(
                lambda: _Pipes(self._log_stderr), *self._command,
                cwd=self._cwd, env=self._env, start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as problem:
            raise AgentFailed(
                f"{self._title} cannot be started: {problem}",
                hint="Check the command of the agent, and that it can be run from here.",
            ) from problem
        self._transport = transport
        self._deadline = Deadline(self._limits)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(problem, AgentError) and self._streamed_text and problem.partial is None:
            problem.partial = str(self._streamed_text)
        termination = asyncio.ensure_future(self._terminate(has_failed=kind is not None))
        try:
            await asyncio.shield(termination)
        except asyncio.CancelledError:
            # The cancelled task may continue only when the program is gone.
            await asyncio.wait([termination])
            raise

    def send(self, message: dict[str, Any]) -> None:
        """Write a message as one line, and restart the time limits of the program."""
        self._pipes.write(encode_body(message) + b"\n")
        self._deadline = Deadline(self._limits)

    async def next_event(self) -> ProtocolEvent:
        """Wait for the next event of the program and return it."""
        while not self._pending:
            self._pending.extend(line for line in await self._read_lines() if line.strip())
        await self._pace.keep()
        event = jsonl_protocol.decode_event(self._pending.popleft(), self._title)
        if isinstance(event, Delta):
            self._streamed_text.append(event.text)
            self._limits.check_text(len(self._streamed_text), self._title)
        elif isinstance(event, Step):
            self._streamed_text.clear()
            self._limits.check_text(len(event.text or ""), self._title)
        return event

    async def _read_lines(self) -> list[str]:
        """Return the lines that the next output completes; raise `AgentFailed` at its end."""
        try:
            chunk = await self._watcher.wait(self._pipes.read(), self._deadline.left())
        except TimeoutError:
            raise self._deadline.timeout_error(self._title) from None
        if chunk:
            self._deadline.has_begun = True
            self._size += len(chunk)
            if self._size > self._limits.size:
                raise AgentFailed(
                    f"{self._title} wrote more than {self._limits.size} bytes.",
                    hint="It may not stop by itself: fix it, or raise limits.size.",
                )
            return self._lines.feed(chunk)
        if left := self._lines.rest():
            return left
        raise await self._exit_error()

    async def _exit_error(self) -> AgentFailed:
        """Return the error for a program whose output ended before it had answered."""
        with contextlib.suppress(TimeoutError):
            await self._watcher.wait(_wait_exit(self._pipes), self._grace)
        code = self._transport.get_returncode()
        ended = "closed its output" if code is None else f"ended with {code}"
        reason = f": {self._last_stderr_line}" if self._last_stderr_line else "."
        return AgentFailed(
            f"{self._title} {ended} before it had answered{reason}",
            hint="Run it by hand with the same input; its standard error is in the log.",
            exit_code=code,
        )

    def _log_stderr(self, lines: list[str]) -> None:
        for line in lines:
            if text := log_line(line, _MAX_LOG_LINE):
                self._last_stderr_line = text
                log.info("%s %s: %s", self._session_id, os.path.basename(self._command[0]), text)

    async def _terminate(self, *, has_failed: bool) -> None:
        """Terminate the process group and wait until the program is gone."""
        pipes = self._pipes
        if (stdin := self._transport.get_pipe_transport(0)) is not None:
            stdin.close()
        if has_failed:
            _signal_group(self._transport, is_final=False)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(pipes.has_exited.wait(), self._grace)
        # Also if the program has exited by itself: its group may contain processes it left behind.
        _signal_group(self._transport, is_final=True)
        await pipes.has_exited.wait()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(pipes.stderr_closed.wait(), self._grace)
        self._transport.close()
        await pipes.connection_closed.wait()


async def _wait_exit(pipes: _Pipes) -> None:
    await pipes.has_exited.wait()
    await pipes.stderr_closed.wait()


def _signal_group(transport: asyncio.SubprocessTransport, *, is_final: bool) -> None:
    """Send SIGTERM, or SIGKILL if `is_final`, to the process group of a program."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            transport.kill()
        else:
            os.killpg(transport.get_pid(), signal.SIGKILL if is_final else signal.SIGTERM)
