"""An endpoint of one's own as an agent: the request is POSTed as JSON (`lines.py`).

The answer is one JSON object (an event, `{"text": …}` or `{"events": […]}`), or a stream of events,
as lines of JSON or as server-sent events. A step with tool calls ends it: the tools are run here,
and the endpoint is asked again, with a history that has their results. So it keeps nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any

import msgspec

from tertulia.agents import jsonl_protocol
from tertulia.agents.base import Delta, Event, Request, Step
from tertulia.agents.cancellation import StopWatcher
from tertulia.agents.jsonl_protocol import Said
from tertulia.agents.sse import (
    LineSplitter,
    SseParser,
)
from tertulia.agents.tool_loop import exchange
from tertulia.agents.transport import (
    Limits,
    Retry,
    Sleep,
    StreamedResponse,
    Transport,
)
from tertulia.core.history.formats import Format
from tertulia.core.message import to_json
from tertulia.errors import AgentError, AgentUnavailable

_ACCEPTED = "application/x-ndjson, text/event-stream, application/json"
_LINES = ("application/x-ndjson", "application/jsonl", "application/json-lines")


class HttpAgent:
    """Any endpoint: `HttpAgent("http://localhost:9000/agent")`."""

    def __init__(
        self,
        url: str,
        *,
        name: str = "http",
        headers: Mapping[str, str] | None = None,
        format: Format = "openai",
        history_tokens: int | None = None,
        max_steps: int = 30,
        tool_seconds: float = 300.0,
        limits: Limits | None = None,
        retry: Retry | None = None,
        sleep: Sleep = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        given = dict(headers or {})
        self.name = name
        self._wire = Transport(
            url,
            headers={"Accept": _ACCEPTED, **given},
            secrets=tuple(given.values()),
            limits=limits,
            retry=retry,
            sleep=sleep,
            chance=chance,
        )
        self._format: Format = format
        self._history_tokens = history_tokens
        self._max_steps = max_steps
        self._tool_seconds = tool_seconds

    def __repr__(self) -> str:
        return f"HttpAgent({self._wire.shown_url})"

    async def close(self) -> None:
        """Let go of connections."""
        await self._wire.close()

    def run(self, request: Request) -> AsyncGenerator[Event, None]:
        """Answer a request, event by event."""
        return exchange(
            self._asked, request, max_steps=self._max_steps, tool_seconds=self._tool_seconds
        )

    async def _asked(self, request: Request, watch: StopWatcher) -> AsyncGenerator[Event, None]:
        """One step, with as many tries as it takes; nothing is tried again once events came."""
        watch.check()
        await request.steer()
        history = await request.history(format=self._format, max_tokens=self._history_tokens)
        body = jsonl_protocol.asked(request, history)
        tried, has_begun, shown = 0, False, ""
        while True:
            tried += 1
            try:
                async with aclosing(self._tried(body, watch)) as events:
                    async for event in events:
                        has_begun = True
                        shown += event.text if isinstance(event, Delta) else ""
                        yield event
                        if isinstance(event, Step):
                            return
                raise AgentUnavailable(
                    f"{self._wire.shown_url} broke off before it had answered.", hint="Try again."
                )
            except AgentError as raised:
                problem = raised
            if shown:
                problem.data["partial"] = shown
            if has_begun or not await self._wire.pause(problem, tried, watch):
                raise problem

    async def _tried(self, body: dict[str, Any], watch: StopWatcher) -> AsyncGenerator[Said, None]:
        async with self._wire.post("", body, watch) as answer:
            if not answer.is_events and answer.kind not in _LINES:
                for text in self._objects(await answer.whole()):
                    yield self._read(text)
                return
            async with aclosing(_streamed(answer)) as texts:
                async for text in texts:
                    yield self._read(text)

    def _objects(self, whole: bytes) -> list[str]:
        """The events in an answer that is one object."""
        text = whole.decode("utf-8", "replace")
        try:
            said = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            raise self._wire.nonsense("something that is not JSON", text) from None
        if not isinstance(said, dict):
            raise self._wire.nonsense("something that is not a JSON object", text)
        events = said.get("events")
        if isinstance(events, list):
            return [to_json(event) for event in events]
        return [to_json(said if "type" in said else {"type": "step", **said})]

    def _read(self, text: str) -> Said:
        return jsonl_protocol.read(text, self._wire.shown_url, self._wire.scrub)


async def _streamed(answer: StreamedResponse) -> AsyncGenerator[str, None]:
    """The texts of the events in a stream of either form."""
    if answer.is_events:
        events = SseParser()
        async for chunk in answer.chunks:
            for event in events.feed(chunk):
                yield event.data
        for event in events.rest():
            yield event.data
        return
    found = LineSplitter()
    async for chunk in answer.chunks:
        for line in found.feed(chunk):
            if line.strip():
                yield line
    for line in found.rest():
        yield line
