"""Server-sent events, and answers that are streamed while the agent writes them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, aclosing, contextmanager, nullcontext, suppress
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tertulia.agents.base import Delta, Event, Step
from tertulia.errors import Error
from tertulia.gateway.request_reply import AgentReply, AgentRequest, Responder, stopping
from tertulia.http.auth import TooManyRequests
from tertulia.http.encoding import encode_json

# A comment line, which clients ignore: it keeps the connection open.
PING = b": still here\n\n"
_RETRY_SECONDS = 5


def format_event(data: Any, *, name: str | None = None, id: str | None = None) -> bytes:
    """Return one event. JSON contains no line breaks, so one `data` line is enough."""
    head = (f"id: {id}\n" if id is not None else "") + (f"event: {name}\n" if name else "")
    return head.encode() + b"data: " + encode_json(data) + b"\n\n"


class StreamLimit:
    """Counts the open streams of each token, and of the addresses of those that many share."""

    def __init__(self, limit: int, address_limit: int) -> None:
        self._limit = limit
        self._address_limit = address_limit
        self._open: Counter[tuple[str, str | None]] = Counter()

    def check(self, name: str, address: str | None = None) -> None:
        """Raise `TooManyRequests` if this token, or the address, may open no further stream."""
        if self._open[name, None] >= self._limit:
            raise TooManyRequests(
                f"This token has {self._limit} streams open.",
                hint="Close some, or raise streams_per_token.",
                retry_after=_RETRY_SECONDS,
            )
        if address is not None and self._open[name, address] >= self._address_limit:
            raise TooManyRequests(
                f"This address has {self._address_limit} streams open.",
                hint="Close some, or raise streams_per_address.",
                retry_after=_RETRY_SECONDS,
            )

    @contextmanager
    def open(self, name: str, address: str | None = None) -> Iterator[None]:
        """Count a stream for the time of the block."""
        keys = {(name, None), (name, address)}
        self._open.update(keys)
        try:
            yield
        finally:
            self._open.subtract(keys)
            for key in keys:
                if not self._open[key]:
                    del self._open[key]


class EventStream(Response):
    """A response that sends events until they end, the client disconnects, or `seconds` are up."""

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncGenerator[bytes, None],
        *,
        seconds: float,
        headers: dict[str, str] | None = None,
        counted: AbstractContextManager[None] | None = None,
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-store", **(headers or {})})
        del self.headers["content-length"]
        self._events = events
        self._seconds = seconds
        self._counted = counted or nullcontext()

    def end_when_refused(self, check: Callable[[], Awaitable[object]], *, seconds: float) -> None:
        """Call `check` before an event, at most every `seconds`, and end the stream if it raises.

        For rights that may end while the stream is open. Pings are events too.
        """
        self._events = _until_refused(self._events, check, seconds)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("method") == "HEAD":
            # The server drops the body: a delivery would count as sent, and reach nobody.
            await self._events.aclose()
            await Response(headers=dict(self.headers))(scope, receive, send)
            return
        with self._counted:
            await self._respond(receive, send)

    async def _respond(self, receive: Receive, send: Send) -> None:
        await send(
            {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        )
        sending = asyncio.create_task(self._send(send))
        disconnect = asyncio.create_task(wait_for_disconnect(receive))
        try:
            await asyncio.wait(
                {sending, disconnect}, timeout=self._seconds, return_when=asyncio.FIRST_COMPLETED
            )
            is_disconnected = disconnect.done()
        finally:
            for task in (sending, disconnect):
                task.cancel()
            await asyncio.gather(sending, disconnect, return_exceptions=True)
        if not sending.cancelled() and (problem := sending.exception()) is not None:
            raise problem
        if not is_disconnected:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Send) -> None:
        async with aclosing(self._events) as events:
            # A client may disconnect at any time; that is not an error.
            with suppress(OSError):
                async for chunk in events:
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})


async def _until_refused(
    events: AsyncGenerator[bytes, None], check: Callable[[], Awaitable[object]], seconds: float
) -> AsyncGenerator[bytes, None]:
    clock = asyncio.get_running_loop().time
    checked_at = clock()
    async with aclosing(events):
        async for event in events:
            if clock() - checked_at >= seconds:
                try:
                    await check()
                except Error:
                    return
                checked_at = clock()
            yield event


async def wait_for_disconnect(receive: Receive) -> None:
    """Return when the client has closed its connection; the body has been read before."""
    while (await receive())["type"] != "http.disconnect":
        pass


class StreamedTurn:
    """A turn under way, and the text of its answer as it is written.

    A client that disconnects early stops the turn, unless it named the message (`is_named`): then
    the turn is finished, and a repeated request gets its answer.
    """

    def __init__(
        self, responder: Responder, request: AgentRequest, *, is_named: bool, ping: float
    ) -> None:
        self._request = request
        self._is_named = is_named
        self._ping = ping
        self._queue: asyncio.Queue[Event | None] = asyncio.Queue()
        self._task = responder.start(request, self._queue.put)
        self._task.add_done_callback(lambda _: self._queue.put_nowait(None))
        self._first: Event | None = None

    async def wait_for_first_event(self) -> None:
        """Wait until the agent produces something; raise the error of a turn that failed before.

        Up to here no response has been sent, so an error can still become a status code.
        """
        try:
            self._first = await self._queue.get()
        except BaseException:
            self.abandon()
            raise
        if self._first is None:
            await self.reply()

    async def texts(self) -> AsyncGenerator[str | None, None]:
        """Yield the pieces of the answer, and None every `ping` seconds; then `reply` is ready."""
        is_finished, has_text = False, False
        try:
            async with aclosing(self._pieces()) as pieces:
                async for piece in pieces:
                    has_text = has_text or piece is not None
                    yield piece
            is_finished = True
            reply = await self.reply()
            if reply.shown_text and not has_text:
                yield reply.shown_text
        finally:
            if not is_finished:
                self.abandon()

    async def _pieces(self) -> AsyncGenerator[str | None, None]:
        """Yield the text of the agent; a step without deltas is yielded as one piece."""
        has_streamed = False
        async with aclosing(self._events()) as events:
            async for event in events:
                if event is None:
                    yield None
                elif isinstance(event, Delta):
                    has_streamed = has_streamed or bool(event.text)
                    yield event.text
                elif isinstance(event, Step):
                    if event.text and not has_streamed:
                        yield event.text
                    has_streamed = False

    async def reply(self) -> AgentReply:
        """Return the reply when the turn has ended; raise its error if it failed."""
        await asyncio.wait([self._task])
        if self._task.cancelled():
            raise stopping()
        return self._task.result()

    def abandon(self) -> None:
        """Stop waiting for the turn, and stop the turn itself if it has no name to repeat it by."""
        if not self._is_named:
            self._request.stop.set()
        # Retrieve the exception, so that asyncio does not log it: the turn records its own failure.
        self._task.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def _events(self) -> AsyncGenerator[Event | None, None]:
        event = self._first
        while event is not None:
            yield event
            while True:
                try:
                    event = await asyncio.wait_for(self._queue.get(), self._ping)
                    break
                except TimeoutError:
                    yield None
