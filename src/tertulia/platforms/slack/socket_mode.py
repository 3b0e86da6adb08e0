"""Socket Mode: the connections on which Slack sends events, each of them to one connection.

An envelope is acknowledged after its event is stored. An envelope that is not acknowledged within
three seconds is sent again, on any connection of the app, which harms nothing: the store knows the
message. A connection that Slack wants to end is replaced before it is closed, so that no event
finds none; one that gives no sign of life is closed and made anew.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

from tertulia.core.backoff import JITTER, Backoff
from tertulia.errors import (
    AccountProblem,
    Error,
    PlatformError,
    PlatformUnavailable,
    RateLimited,
)
from tertulia.platforms.slack.web_api import WebApi, import_library

log = logging.getLogger("tertulia.platforms")

_RECONNECT = Backoff(first=1, longest=30)
_HELLO_SECONDS: Final = 30.0
# Together less than a minute: a connection without a sign of life is closed after it.
_PING_SECONDS: Final = 15.0
_PONG_SECONDS: Final = 20.0
# Nothing more is read while so many events wait to be stored.
_MAX_WAITING: Final = 500
# How long a connection that is replaced may still acknowledge the events it has read.
_DRAIN_SECONDS: Final = 3.0
# A connection that ends sooner is not replaced at once: Slack may have too many of them.
_STABLE_SECONDS = 10.0
# Events, and what people did with the blocks of a message.
_KINDS: Final = ("events_api", "interactive")
_ENVELOPE_ID = re.compile(r'"envelope_id"\s*:\s*"([\w-]{1,80})"')

Accept = Callable[[Mapping[str, Any]], Awaitable[None]]
"""Stores the event of a payload; raises an `Error` if Slack has to send it again."""


class StateReport(Protocol):
    """The adapter, to which the state of the connections is reported."""

    def mark_listening(self) -> None: ...

    def mark_heard(self) -> None: ...

    def mark_problem(self, problem: str | None) -> None: ...


class SocketMode:
    """Keeps the connections of one app."""

    def __init__(
        self, api: WebApi, app_token: str, *, connections: int, accept: Accept, state: StateReport
    ) -> None:
        self._api = api
        self._app_token = app_token
        self._count = connections
        self._accept = accept
        self._state = state
        self._open: set[SocketConnection] = set()

    async def run(self) -> None:
        """Keep all connections until cancelled; raise `AccountProblem` for a refused token."""
        slots = [asyncio.create_task(self._keep_connection()) for _ in range(self._count)]
        try:
            await asyncio.wait(slots, return_when=asyncio.FIRST_EXCEPTION)
            for slot in slots:
                if slot.done():
                    slot.result()
        finally:
            await _cancel(*slots)

    async def _keep_connection(self) -> None:
        """Keep one connection open, replaced before it is closed if Slack asks for it."""
        attempts = 0
        previous: SocketConnection | None = None
        try:
            while True:
                connection = SocketConnection(self._api, self._accept, self._state)
                problem = await self._start(connection)
                if problem is None:
                    self._report_open(connection)
                    if previous is not None:
                        await previous.stop()
                    previous, opened_at = connection, time.monotonic()
                    problem = await connection.wait_end()
                    is_stable = time.monotonic() - opened_at > _STABLE_SECONDS
                    if problem is None and is_stable:
                        continue  # Slack wants it replaced: it serves until the next one is open
                    attempts = 0 if is_stable else attempts
                attempts += 1
                problem = problem or PlatformUnavailable("Slack ended a connection at once.")
                await self._pause(problem, attempts)
        finally:
            if previous is not None:
                self._open.discard(previous)
                await previous.abort()

    async def _start(self, connection: SocketConnection) -> PlatformError | None:
        try:
            answer = await self._api.ask("apps.connections.open", token=self._app_token)
            url = answer.get("url")
            if not isinstance(url, str):
                return PlatformUnavailable("Slack gave no address of a socket.")
            return await connection.start(url)
        except AccountProblem:
            raise
        except PlatformError as problem:
            return problem

    def _report_open(self, connection: SocketConnection) -> None:
        self._open = {item for item in self._open if item.is_open} | {connection}
        self._state.mark_listening()

    async def _pause(self, problem: PlatformError, attempts: int) -> None:
        self._open = {item for item in self._open if item.is_open}
        if not self._open:
            self._state.mark_problem(problem.message)
        seconds = _RECONNECT.delay(attempts, JITTER.random())
        if isinstance(problem, RateLimited):
            seconds = max(seconds, problem.retry_after)
        log.warning("slack: %s Connecting again in %.1f s.", problem.message, seconds)
        await asyncio.sleep(seconds)


class SocketConnection:
    """One socket: `start` opens it, `wait_end` tells its end, `stop` closes it."""

    def __init__(self, api: WebApi, accept: Accept, state: StateReport) -> None:
        self._api = api
        self._accept = accept
        self._state = state
        self._is_ready = asyncio.Event()
        self._is_leaving = asyncio.Event()
        self._running: asyncio.Task[PlatformError] | None = None
        self._events: set[asyncio.Task[None]] = set()

    @property
    def is_open(self) -> bool:
        """Return whether events can arrive on it."""
        is_running = self._running is not None and not self._running.done()
        return is_running and self._is_ready.is_set()

    async def start(self, url: str) -> PlatformError | None:
        """Connect, and wait until Slack says hello; return the problem if it does not."""
        self._running = asyncio.create_task(self._run(url))
        ready = asyncio.create_task(self._is_ready.wait())
        try:
            await asyncio.wait(
                [self._running, ready],
                timeout=_HELLO_SECONDS,
                return_when=asyncio.FIRST_COMPLETED,
            )
        except asyncio.CancelledError:
            await self.abort()
            raise
        finally:
            await _cancel(ready)
        if self.is_open:
            return None
        problem = self._running.result() if self._running.done() else None
        await self.abort()
        return problem or PlatformUnavailable("Slack did not say hello.")

    async def wait_end(self) -> PlatformError | None:
        """Wait until it is closed and return why; return None if it is to be replaced."""
        assert self._running is not None
        leaving = asyncio.create_task(self._is_leaving.wait())
        try:
            await asyncio.wait([self._running, leaving], return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _cancel(leaving)
        return self._running.result() if self._running.done() else None

    async def stop(self) -> None:
        """Close it, after the events that it has read are acknowledged."""
        if self._events:
            await asyncio.wait(self._events, timeout=_DRAIN_SECONDS)
        await self.abort()

    async def abort(self) -> None:
        """Close it at once."""
        if self._running is not None:
            await _cancel(self._running)

    async def _run(self, url: str) -> PlatformError:
        """Serve the socket until it is closed; return why."""
        library = import_library()
        try:
            async with self._api.open_socket(url) as socket:
                return await self._serve(socket)
        except ExceptionGroup as group:
            # A task of the library failed, for example with a frame that is against the protocol.
            failure: Exception = group.exceptions[0]
        except library.websockets.HTTPXWSException as refusal:
            failure = refusal
        except (library.HTTPError, library.InvalidURL) as broken:
            failure = broken
        return _closed(failure)

    async def _serve(self, socket: Any) -> PlatformError:
        library = import_library()
        pinging = asyncio.create_task(self._ping(socket))
        reading = asyncio.create_task(self._read(socket))
        try:
            await asyncio.wait([pinging, reading], return_when=asyncio.FIRST_COMPLETED)
            if pinging.done():
                return pinging.result()
            reading.result()
        except library.websockets.HTTPXWSException as problem:
            return _closed(problem)
        finally:
            await _cancel(pinging, reading, *self._events)
        return PlatformUnavailable("Slack closed the connection.")

    async def _ping(self, socket: Any) -> PlatformError:
        """Ask for a sign of life, again and again; return when there is none."""
        library = import_library()
        while True:
            await asyncio.sleep(_PING_SECONDS)
            try:
                async with asyncio.timeout(_PONG_SECONDS):
                    pong = await socket.ping()
                    await pong.wait()
            except TimeoutError:
                return PlatformUnavailable("Slack gave no sign of life.")
            except library.websockets.HTTPXWSException as problem:
                return _closed(problem)
            self._state.mark_heard()

    async def _read(self, socket: Any) -> None:
        """Read envelopes until the socket is closed; each becomes a task of its own."""
        import_library()
        from wsproto.events import TextMessage

        while True:
            frame = await socket.receive()
            if not isinstance(frame, TextMessage):
                continue
            self._state.mark_heard()
            envelope = _decode(frame.data)
            match envelope.get("type"):
                case "hello":
                    self._is_ready.set()
                case "disconnect":
                    log.info("slack: a connection is replaced")
                    self._is_leaving.set()
                case _:
                    task = asyncio.create_task(self._accept_envelope(socket, envelope))
                    self._events.add(task)
                    task.add_done_callback(self._events.discard)
                    if len(self._events) >= _MAX_WAITING:
                        await asyncio.wait(self._events, return_when=asyncio.FIRST_COMPLETED)

    async def _accept_envelope(self, socket: Any, envelope: Mapping[str, Any]) -> None:
        """Store the event of an envelope, then acknowledge the envelope."""
        from wsproto.utilities import LocalProtocolError

        library = import_library()
        envelope_id, payload = envelope.get("envelope_id"), envelope.get("payload")
        if envelope.get("type") in _KINDS and isinstance(payload, Mapping):
            try:
                await self._accept(payload)
            except Error as problem:
                log.warning("slack: an event was not stored, it is sent again: %s", problem)
                return
        else:
            log.warning("slack: an envelope was not understood and is skipped")
        if isinstance(envelope_id, str):
            # If this fails, the event is sent again, and recognised.
            with suppress(library.websockets.HTTPXWSException, LocalProtocolError):
                await socket.send_text(json.dumps({"envelope_id": envelope_id}))


def _decode(text: str) -> Mapping[str, Any]:
    """Return the envelope in a text; of one that is no JSON only the id, to acknowledge it."""
    try:
        envelope = json.loads(text)
    except (ValueError, RecursionError):
        match = _ENVELOPE_ID.search(text)
        return {"envelope_id": match[1]} if match is not None else {}
    return envelope if isinstance(envelope, dict) else {}


def _closed(failure: Exception) -> PlatformUnavailable:
    code = getattr(failure, "code", None)
    reason = f"code {code}" if isinstance(code, int) else type(failure).__name__
    return PlatformUnavailable(f"The connection to Slack was closed ({reason}).")


async def _cancel(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
