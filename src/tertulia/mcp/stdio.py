"""A connection to the program of an MCP server: one JSON message per line."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tertulia.agents.pace import Pace
from tertulia.core.text.excerpt import log_line
from tertulia.mcp import child_guard
from tertulia.mcp.protocol import (
    LIST_CHANGED,
    MAX_MESSAGE,
    CallLost,
    ServerUnavailable,
    answer_request,
    error_of,
)

log = logging.getLogger("tertulia.mcp")

_GRACE_SECONDS: Final = 2.0  # after its input is closed
_END_SECONDS: Final = 8.0  # for the guard to end everything
_MAX_LOG_LINES: Final = 200  # of one process
_MAX_LOG_LINE: Final = 500
_CHUNK: Final = 65_536


class StdioConnection:
    """A running program and the requests that wait for its replies."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self._name = name
        self._process = process
        self._ids = itertools.count(1)
        self._replies: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._closed = asyncio.Event()
        self._problem = "the server has ended"
        self._log_lines = 0
        self.on_changed: Callable[[], None] = lambda: None
        self._tasks = [
            asyncio.create_task(self._read_messages()),
            asyncio.create_task(self._read_errors()),
        ]

    @classmethod
    async def start(
        cls, name: str, command: Sequence[str], environment: Mapping[str, str]
    ) -> StdioConnection:
        """Start the program; raise `ServerUnavailable` if that fails."""
        # The guard starts the program: a missing one would only be a server that ends at once.
        if shutil.which(command[0], path=environment.get("PATH", os.defpath)) is None:
            raise ServerUnavailable(f"the program {command[0]} is missing or not executable")
        guard = [sys.executable, "-I", "-S", child_guard.__file__]
        try:
            process = await asyncio.create_subprocess_exec(
                *guard,
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=dict(environment),
                limit=MAX_MESSAGE,
                start_new_session=True,
            )
        except (OSError, ValueError) as problem:
            raise ServerUnavailable(f"the program cannot be started: {problem}") from problem
        return cls(name, process)

    @property
    def pid(self) -> int:
        """The process id of the guard of the program."""
        return self._process.pid

    async def request(
        self, method: str, params: Mapping[str, Any], *, seconds: float
    ) -> dict[str, Any]:
        """Send a request, once, and return the result."""
        if self._closed.is_set():
            raise ServerUnavailable(self._problem)
        number = next(self._ids)
        reply: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._replies[number] = reply
        try:
            self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": dict(params)})
            async with asyncio.timeout(seconds):
                message = await reply
        except TimeoutError:
            await self._cancel(number, "it took too long")
            raise CallLost(f"there was no answer within {seconds:g} seconds") from None
        except asyncio.CancelledError:
            await self._cancel(number, "it was stopped")
            raise
        finally:
            self._replies.pop(number, None)
        if (error := error_of(message)) is not None:
            raise error
        result = message.get("result")
        return result if isinstance(result, dict) else {}

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification; a failure is not reported."""
        if not self._closed.is_set():
            self._send({"jsonrpc": "2.0", "method": method, "params": dict(params)})

    async def wait_closed(self) -> None:
        """Wait until the connection has failed or was closed."""
        await self._closed.wait()

    @property
    def problem(self) -> str:
        """Why the connection is closed."""
        return self._problem

    async def close(self) -> None:
        """Close the input of the program, and end it with all that it has started."""
        self._fail("the connection was closed")
        process = self._process
        if process.stdin is not None:
            process.stdin.close()
        if not await self._has_ended(_GRACE_SECONDS):
            with contextlib.suppress(ProcessLookupError):
                process.terminate()  # the guard asks every process, and then kills what is left
            if not await self._has_ended(_END_SECONDS):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        # These tasks read the pipes to their end, which closes them.
        await asyncio.wait(self._tasks, timeout=_GRACE_SECONDS)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _has_ended(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._process.wait(), seconds)
        except TimeoutError:
            return False
        return True

    def _send(self, message: Mapping[str, Any]) -> None:
        """Write a message without waiting: a program that only writes would never read it."""
        stdin = self._process.stdin
        assert stdin is not None
        if not stdin.is_closing():
            stdin.write(json.dumps(message).encode() + b"\n")

    async def _cancel(self, number: int, reason: str) -> None:
        await self.notify("notifications/cancelled", {"requestId": number, "reason": reason})

    async def _read_messages(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        pace = Pace()  # reading a line that is there already does not wait
        try:
            while line := await stdout.readline():
                self._read_line(line)
                await pace.keep()
            self._fail("the server has ended")
        except ValueError:
            self._fail(f"the server sent a message of more than {MAX_MESSAGE} bytes")
            while await stdout.read(_CHUNK):
                continue
        except OSError as problem:
            self._fail(f"the server cannot be read: {problem}")

    def _read_line(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            self._log("sent a line that is not a message", line)
            return
        method = message.get("method")
        if method == LIST_CHANGED:
            self.on_changed()
        elif method is not None and "id" in message:
            self._send(answer_request(message))
        elif method is None:
            number = message.get("id")
            reply = self._replies.get(number) if isinstance(number, int) else None
            if reply is not None and not reply.done():
                reply.set_result(message)

    async def _read_errors(self) -> None:
        stderr = self._process.stderr
        assert stderr is not None
        rest = b""
        while chunk := await stderr.read(_CHUNK):
            *lines, rest = (rest + chunk).split(b"\n")
            rest = rest[-_MAX_LOG_LINE:]
            for line in lines:
                self._log("says", line)

    def _log(self, verb: str, line: bytes) -> None:
        self._log_lines += 1
        if self._log_lines <= _MAX_LOG_LINES:
            text = log_line(line[: 4 * _MAX_LOG_LINE].decode("utf-8", "replace"), _MAX_LOG_LINE)
            log.info("MCP server %s %s: %s", self._name, verb, text)

    def _fail(self, problem: str) -> None:
        """End the connection; what was sent and has no reply is lost."""
        if self._closed.is_set():
            return
        self._problem = problem
        self._closed.set()
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(CallLost(problem))
