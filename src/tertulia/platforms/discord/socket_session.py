"""One connection to Discord's gateway: hello, heartbeats, identify or resume, and its events.

Closing with 1000 or 1001 would end the session at Discord; every close here has another code, so
that the session can be resumed, also by another process.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec

from tertulia.core.backoff import JITTER
from tertulia.errors import AccountProblem, PlatformError, PlatformUnavailable
from tertulia.platforms.discord.rest_api import RestApi, import_library

log = logging.getLogger("tertulia.platforms")

GUILDS: Final = 1 << 0
GUILD_MESSAGES: Final = 1 << 9
DIRECT_MESSAGES: Final = 1 << 12
MESSAGE_CONTENT: Final = 1 << 15

MAX_FRAME_BYTES: Final = 16 * 2**20
# A connection without a sign of life for so long is dropped, whatever its heartbeat interval.
SILENCE_SECONDS: Final = 60.0
_HELLO_SECONDS: Final = 20.0
_SEND_SECONDS: Final = 20.0
_INVALID_SECONDS: Final = (1.0, 5.0)  # before a new session after one that Discord ended
_CLOSE_CODE: Final = 4900
_TOO_BIG: Final = 1009
# Codes with which Discord ends a connection for good, and what the owner has to do.
_FINAL: Final = {
    4004: "The token is wrong or was reset. Get a new one in the Developer Portal, under Bot.",
    4010: "Report this: the bot named a shard that does not exist.",
    4011: "The bot is in so many servers that it needs several connections, which this version"
    " does not make.",
    4012: "Report this: the version of the gateway is not served any more.",
    4013: "Report this: the bot asked for events that do not exist.",
    4014: "Switch the Message Content Intent on in the Developer Portal, under Bot, Privileged"
    " Gateway Intents; or set message_content = false, then the bot reads only direct messages and"
    " messages that mention it.",
}
# Codes after which the session cannot be resumed.
_FORGET: Final = frozenset({4003, 4007, 4009})


class Event(msgspec.Struct, frozen=True):
    """An event of the gateway."""

    name: str
    seq: int
    data: Any


class ConnectionEnded(PlatformError):
    """The connection ended; `is_resumable` says whether its session goes on.

    `pause` are the seconds to wait if Discord asked for the end; None: it broke.
    """

    code = "connection_ended"
    retryable = True
    is_resumable: bool = True
    pause: float | None = None


class SocketSession:
    """A connection that was opened; `events` yields what comes through it."""

    def __init__(self, socket: Any, on_frame: Callable[[], None]) -> None:
        self._socket = socket
        self._on_frame = on_frame
        self._is_acknowledged = True
        # When the consumer of the events asked for the next one; None while it handles one.
        self._waiting_since: float | None = time.monotonic()
        self._seq: int | None = None

    async def hello(self) -> float:
        """Wait for the first message and return the interval of heartbeats in seconds."""
        try:
            async with asyncio.timeout(_HELLO_SECONDS):
                while True:
                    frame = await self._read()
                    if frame.get("op") == 10:
                        return float(frame["d"]["heartbeat_interval"]) / 1000
        except (TimeoutError, KeyError, TypeError, ValueError):
            pass
        raise ConnectionEnded("Discord's gateway did not say hello.", hint="It is tried again.")

    async def identify(self, token: str, intents: int) -> None:
        """Begin a session."""
        properties = {"os": "linux", "browser": "tertulia", "device": "tertulia"}
        await self._send(2, {"token": token, "intents": intents, "properties": properties})

    async def resume(self, token: str, session_id: str, seq: int) -> None:
        """Go on with a session after the event `seq`."""
        self._seq = seq
        await self._send(6, {"token": token, "session_id": session_id, "seq": seq})

    async def beat(self, interval: float) -> None:
        """Send heartbeats until cancelled; raise `ConnectionEnded` if one is not acknowledged."""
        await asyncio.sleep(interval * JITTER.random())
        while True:
            self._is_acknowledged = False
            sent_at = time.monotonic()
            await self._send(1, self._seq)
            await asyncio.sleep(interval)
            # While an event is being stored nothing is read, and an acknowledgement may wait.
            is_waiting = self._waiting_since is not None and self._waiting_since <= sent_at
            if is_waiting and not self._is_acknowledged:
                raise ConnectionEnded("Discord's gateway is silent.", hint="It is connected anew.")

    async def events(self) -> AsyncIterator[Event]:
        """Yield events until the connection ends; then raise `ConnectionEnded`."""
        while True:
            self._waiting_since = self._waiting_since or time.monotonic()
            try:
                async with asyncio.timeout(SILENCE_SECONDS):
                    frame = await self._read()
            except TimeoutError:
                raise _silent() from None
            event = await self._handle(frame)
            if event is not None:
                self._waiting_since = None
                yield event
                self._seq = event.seq

    async def _handle(self, frame: dict[str, Any]) -> Event | None:
        match frame.get("op"):
            case 0:
                name, seq = frame.get("t"), frame.get("s")
                if isinstance(name, str) and isinstance(seq, int):
                    return Event(name, seq, frame.get("d"))
                log.warning("discord: an event without name or number is skipped")
            case 1:
                await self._send(1, self._seq)
            case 7:
                raise ConnectionEnded("Discord asked for a new connection.", pause=0.0)
            case 9:
                shortest, longest = _INVALID_SECONDS
                pause = shortest + (longest - shortest) * JITTER.random()
                raise ConnectionEnded(
                    "Discord ended the session.", is_resumable=frame.get("d") is True, pause=pause
                )
            case 11:
                self._is_acknowledged = True
        return None

    async def _read(self) -> dict[str, Any]:
        """Return the next frame; {} for one that cannot be read."""
        content = (await self._socket.receive()).data
        self._on_frame()
        try:
            is_text = isinstance(content, str)
            frame = json.loads(content if is_text else bytes(content).decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            frame = None
        if not isinstance(frame, dict):
            log.warning("discord: a frame of the gateway cannot be read and is skipped")
            return {}
        return frame

    async def _send(self, operation: int, data: Any) -> None:
        from wsproto.utilities import LocalProtocolError

        try:
            async with asyncio.timeout(_SEND_SECONDS):
                await self._socket.send_text(json.dumps({"op": operation, "d": data}))
        except TimeoutError:
            raise _silent() from None
        except LocalProtocolError:  # the library has begun to close it
            raise ConnectionEnded(
                "The connection to Discord is being closed.", hint="It is connected anew."
            ) from None


@asynccontextmanager
async def connect(
    api: RestApi, url: str, on_frame: Callable[[], None]
) -> AsyncIterator[SocketSession]:
    """Open a connection to the gateway.

    Raises `ConnectionEnded` when it ends, and `AccountProblem` if Discord ends it for good.
    """
    library = import_library()
    from httpx2.websockets import AsyncWebSocketClient, HTTPXWSException

    client = AsyncWebSocketClient(
        api.open_client(),
        max_message_size_bytes=MAX_FRAME_BYTES,
        keepalive_ping_interval_seconds=None,  # the gateway has its own heartbeats
        session_class=_resumable_session(),
    )
    address = f"{url.rstrip('/')}/?v=10&encoding=json"
    timeout = library.Timeout(None, connect=_HELLO_SECONDS, pool=_HELLO_SECONDS)
    problem: BaseException
    try:
        async with client.connect(address, timeout=timeout) as socket:
            yield SocketSession(socket, on_frame)
            return
    except BaseExceptionGroup as group:
        problem = _innermost(group)
    except (HTTPXWSException, library.HTTPError, library.InvalidURL) as failure:
        problem = failure
    if isinstance(problem, HTTPXWSException | library.HTTPError | library.InvalidURL):
        raise _meaning(problem)
    raise problem


async def run_together(work: Awaitable[None], heartbeat: Awaitable[None]) -> None:
    """Run both until one of them ends; cancel the other, and raise what ended it."""
    tasks = [asyncio.ensure_future(work), asyncio.ensure_future(heartbeat)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in tasks:
        if not task.cancelled():
            task.result()


def _resumable_session() -> Any:
    from httpx2.websockets import AsyncWebSocketSession

    class ResumableSession(AsyncWebSocketSession):
        """A session of the library, which by itself closes with 1000."""

        async def close(self, code: int = _CLOSE_CODE, reason: str | None = None) -> None:
            await super().close(code, reason)

    return ResumableSession


def _innermost(problem: BaseException) -> BaseException:
    while isinstance(problem, BaseExceptionGroup):
        # The library's own tasks fail after ours did.
        items: list[BaseException] = list(problem.exceptions)
        problem = next((item for item in items if isinstance(item, PlatformError)), items[0])
    return problem


def _meaning(failure: BaseException) -> PlatformError:
    """Return what an error of the library means; it has neither a cause nor an address."""
    code = getattr(failure, "code", None)
    if isinstance(code, int):
        if code in _FINAL:
            return AccountProblem(f"Discord refuses the connection with {code}.", hint=_FINAL[code])
        return ConnectionEnded(
            f"Discord closed the connection with {code}.",
            hint="It is connected anew.",
            # A frame that is too big would come again: what it had is read in another way.
            is_resumable=code not in _FORGET and code != _TOO_BIG,
        )
    response = getattr(failure, "response", None)
    if response is not None:
        return PlatformUnavailable(
            f"Discord's gateway answered {response.status_code} instead of connecting.",
            hint="Check gateway_url and the proxies in between.",
        )
    return ConnectionEnded(
        f"The connection to Discord broke ({type(failure).__name__}).",
        hint="It is connected anew.",
    )


def _silent() -> ConnectionEnded:
    return ConnectionEnded("Discord's gateway is silent.", hint="It is connected anew.")
