"""Server-sent events, and answers that are shown while they are written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tertulia.agents.base import Delta, Event, Step
from tertulia.gateway.request_reply import (
    AgentReply,
    AgentRequest,
    Responder,
)
from tertulia.http.encoding import encoded

PING = b": still here\n\n"


def event(data: Any, *, name: str | None = None, id: str | None = None) -> bytes:
    """One event. JSON has no line breaks, so it stands on one line."""
    head = (f"id: {id}\n" if id is not None else "") + (f"event: {name}\n" if name else "")
    return head.encode() + b"data: " + encoded(data) + b"\n\n"


class EventStream(Response):
    """Sends events until there are no more, the client is gone, or the time is over."""

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncGenerator[bytes, None],
        *,
        seconds: float,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-store", **(headers or {})})
        del self.headers["content-length"]
        self._events = events
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send(
            {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        )
        sending = asyncio.create_task(self._send(send))
        gone = asyncio.create_task(_gone(receive))
        try:
            await asyncio.wait(
                {sending, gone}, timeout=self._seconds, return_when=asyncio.FIRST_COMPLETED
            )
            is_gone = gone.done()
        finally:
            for task in (sending, gone):
                task.cancel()
            await asyncio.gather(sending, gone, return_exceptions=True)
        if not sending.cancelled() and (problem := sending.exception()) is not None:
            raise problem
        if not is_gone:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Send) -> None:
        async with aclosing(self._events) as events:
            # A client that went away is no fault of anybody's.
            with suppress(OSError):
                async for chunk in events:
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class StreamedTurn:
    """An answer under way, and what can be shown of it.

    Whoever leaves before the end stops it; unless the request can be repeated by its name: then it
    is finished, for whoever comes back.
    """

    def __init__(
        self, direct: Responder, ask: AgentRequest, *, is_named: bool, ping: float
    ) -> None:
        self._ask = ask
        self._is_named = is_named
        self._ping = ping
        self._heard: asyncio.Queue[Event | None] = asyncio.Queue()
        self._task = direct.start(ask, self._heard.put)
        self._task.add_done_callback(lambda _: self._heard.put_nowait(None))
        self._first: Event | None = None

    async def begin(self) -> None:
        """Wait for the first sign; what fails until then can be told by a status."""
        try:
            self._first = await self._heard.get()
        except BaseException:
            self.leave()
            raise
        if self._first is None:
            await self._task

    async def texts(self) -> AsyncGenerator[str | None, None]:
        """The pieces of the answer as they come, None as a sign of life; then `answer` has it."""
        is_over, has_shown = False, False
        try:
            async with aclosing(self._pieces()) as pieces:
                async for piece in pieces:
                    has_shown = has_shown or piece is not None
                    yield piece
            is_over = True
            answer = await self._task
            if answer.text and not has_shown:
                yield answer.text
        finally:
            if not is_over:
                self.leave()

    async def _pieces(self) -> AsyncGenerator[str | None, None]:
        """What the agent writes; a step that was not shown piece by piece is shown whole."""
        shown = ""
        async with aclosing(self._events()) as events:
            async for heard in events:
                if heard is None:
                    yield None
                elif isinstance(heard, Delta):
                    shown += heard.text
                    yield heard.text
                elif isinstance(heard, Step):
                    if heard.text and not shown:
                        yield heard.text
                    shown = ""

    async def answer(self) -> AgentReply:
        return await self._task

    def leave(self) -> None:
        """Nobody waits any more."""
        if not self._is_named:
            self._ask.stop.set()
        # Whether it failed after that is nobody's question; the turn itself is marked.
        self._task.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def _events(self) -> AsyncGenerator[Event | None, None]:
        heard = self._first
        while heard is not None:
            yield heard
            while True:
                try:
                    heard = await asyncio.wait_for(self._heard.get(), self._ping)
                    break
                except TimeoutError:
                    yield None
