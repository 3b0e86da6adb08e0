"""Agent that POSTs each request as JSON to an HTTP endpoint (`jsonl_protocol.py`).

The response is one JSON object (an event, `{"text": …}` or `{"events": […]}`), or a stream of
events, as JSON Lines or as server-sent events. A step with tool calls ends the response: the tools
run here, and the endpoint is called again with a history that contains their results. So the
endpoint needs no state.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec

from tertulia.agents import jsonl_protocol
from tertulia.agents.agent_options import HttpAgentOptions
from tertulia.agents.base import Delta, Event, Request, Step
from tertulia.agents.cancellation import StopWatcher
from tertulia.agents.jsonl_protocol import ProtocolEvent
from tertulia.agents.pace import Pace
from tertulia.agents.remote_agent import Endpoint, RemoteAgent
from tertulia.agents.sse import LineSplitter, SseParser
from tertulia.agents.transport import StreamedResponse
from tertulia.core.message import to_json
from tertulia.core.text.text_buffer import TextBuffer
from tertulia.errors import AgentError, AgentUnavailable

_ACCEPT = "application/x-ndjson, text/event-stream, application/json"
_JSONL_TYPES = ("application/x-ndjson", "application/jsonl", "application/json-lines")


class HttpAgent(RemoteAgent[HttpAgentOptions]):
    """Agent behind an HTTP endpoint."""

    def _endpoint(self) -> Endpoint:
        return Endpoint(self._options.url, {"Accept": _ACCEPT})

    async def _generate_step(
        self, request: Request, watcher: StopWatcher
    ) -> AsyncGenerator[Event, None]:
        """Call the endpoint, with retries as long as it has sent no event; yield its events."""
        watcher.check()
        await request.steer()
        options = self._options
        history = await request.history(format=options.format, max_tokens=options.history_tokens)
        body = jsonl_protocol.encode_request(request, history)
        tries, has_begun, streamed_text = 0, False, TextBuffer()
        while True:
            tries += 1
            try:
                async with aclosing(self._attempt(body, watcher)) as events:
                    async for event in events:
                        has_begun = True
                        if isinstance(event, Delta):
                            streamed_text.append(event.text)
                        self._check_text(event, streamed_text)
                        yield event
                        if isinstance(event, Step):
                            return
                raise AgentUnavailable(
                    f"{self._transport.display_url} broke off before it had answered.",
                    hint="Try again.",
                )
            except AgentError as raised:
                problem = raised
            if streamed_text:
                problem.partial = str(streamed_text)
            if has_begun or not await self._transport.wait_before_retry(problem, tries, watcher):
                raise problem

    def _check_text(self, event: ProtocolEvent, streamed_text: TextBuffer) -> None:
        length = len(event.text or "") if isinstance(event, Step) else len(streamed_text)
        self._transport.limits.check_text(length, self._transport.display_url)

    async def _attempt(
        self, body: dict[str, Any], watcher: StopWatcher
    ) -> AsyncGenerator[ProtocolEvent, None]:
        """Make one attempt; yield the events of the response."""
        async with self._transport.post("", body, watcher) as response:
            if not response.is_event_stream and response.content_type not in _JSONL_TYPES:
                for line in self._split_object(await response.read_all()):
                    yield self._decode_event(line)
                return
            async with aclosing(_stream_lines(response)) as lines:
                async for line in lines:
                    yield self._decode_event(line)

    def _split_object(self, body: bytes) -> list[str]:
        """Return each event of a response that is one JSON object, as JSON."""
        text = body.decode("utf-8", "replace")
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            raise self._transport.invalid_response("something that is not JSON", text) from None
        if not isinstance(value, dict):
            raise self._transport.invalid_response("something that is not a JSON object", text)
        events = value.get("events")
        if isinstance(events, list):
            return [to_json(event) for event in events]
        return [to_json(value if "type" in value else {"type": "step", **value})]

    def _decode_event(self, line: str) -> ProtocolEvent:
        transport = self._transport
        return jsonl_protocol.decode_event(line, transport.display_url, transport.scrub)


async def _stream_lines(response: StreamedResponse) -> AsyncGenerator[str, None]:
    """Yield the JSON of each event of a stream of server-sent events or JSON Lines."""
    pace = Pace()
    if response.is_event_stream:
        parser = SseParser()
        async for chunk in response.chunks:
            for event in parser.feed(chunk):
                await pace.keep()
                yield event.data
        for event in parser.rest():
            yield event.data
        return
    splitter = LineSplitter()
    async for chunk in response.chunks:
        for line in splitter.feed(chunk):
            if line.strip():
                await pace.keep()
                yield line
    for line in splitter.rest():
        yield line
