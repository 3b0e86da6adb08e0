"""Streaming costs as much as it is long, and leaves the event loop to others.

The texts of the deltas count the characters that are copied when they are concatenated. So no test
here depends on how fast the machine is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, SupportsIndex

import pytest

from tertulia import AgentError, AgentFailed, Source
from tertulia.agents import (
    AnthropicAgent,
    AnthropicOptions,
    Delta,
    HttpAgent,
    HttpAgentOptions,
    Limits,
    OpenAIAgent,
    OpenAIOptions,
    jsonl_protocol,
    model_agent,
)
from tertulia.agents.base import Request
from tertulia.agents.cancellation import StopWatcher
from tertulia.agents.command import _Child
from tertulia.agents.model_agent import ModelAgent, ResponseReader
from tertulia.agents.pace import BURST
from tertulia.agents.sse import SseEvent
from tertulia.gateway.progress import TurnProgress
from tertulia.http.openai_api import _EventWriter, _TextEvents
from tertulia.mcp.stdio import StdioConnection
from tertulia.platforms.base import StreamUpdate
from tests.gateway.running_gateway import App

PIECES, LENGTH = 2_000, 20
TOTAL = PIECES * LENGTH
EVENT = SseEvent("", "{}")


class CountedText(str):
    """A text that counts the characters copied by `+`, in all texts that were made from it."""

    copied = 0

    def __add__(self, other: str) -> CountedText:
        return self._joined(str.__add__(self, other))

    def __radd__(self, other: str) -> CountedText:
        return self._joined(other + str(self))

    def __getitem__(self, key: SupportsIndex | slice) -> CountedText:
        return CountedText(str.__getitem__(self, key))

    @staticmethod
    def _joined(text: str) -> CountedText:
        CountedText.copied += len(text)
        return CountedText(text)


@pytest.fixture(autouse=True)
def _start_at_zero() -> None:
    CountedText.copied = 0


def piece() -> CountedText:
    return CountedText("x" * LENGTH)


def anthropic_delta(kind: str, field: str) -> dict[str, Any]:
    delta = {"type": kind, field: piece()}
    return {"type": "content_block_delta", "index": 0, "delta": delta}


def openai_delta(**delta: Any) -> dict[str, Any]:
    return {"choices": [{"delta": delta}]}


def openai() -> ModelAgent[Any]:
    return OpenAIAgent(OpenAIOptions(model="m", api_key="k"))


def anthropic() -> ModelAgent[Any]:
    return AnthropicAgent(AnthropicOptions(model="m", api_key="k"))


def openai_call() -> dict[str, Any]:
    return openai_delta(tool_calls=[{"index": 0, "id": "c", "function": {"arguments": piece()}}])


STREAMS: dict[str, tuple[Callable[[], ModelAgent[Any]], Callable[[], dict[str, Any]]]] = {
    "openai text": (openai, lambda: openai_delta(content=piece())),
    "openai reasoning": (openai, lambda: openai_delta(reasoning=piece())),
    "openai reasoning_content": (openai, lambda: openai_delta(reasoning_content=piece())),
    "openai refusal": (openai, lambda: openai_delta(refusal=piece())),
    "openai call": (openai, openai_call),
    "anthropic text": (anthropic, lambda: anthropic_delta("text_delta", "text")),
    "anthropic thinking": (anthropic, lambda: anthropic_delta("thinking_delta", "thinking")),
    "anthropic call": (anthropic, lambda: anthropic_delta("input_json_delta", "partial_json")),
    "anthropic signature": (anthropic, lambda: anthropic_delta("signature_delta", "signature")),
}


@pytest.mark.parametrize("name", STREAMS)
def test_model_response_is_copied_a_few_times(name: str) -> None:
    agent, chunk = STREAMS[name]
    reader = stream_chunks(agent()._reader(), chunk)
    reply = reader.reply()
    assert CountedText.copied <= 4 * TOTAL
    contents = [reader.text, reply.reasoning, *(str(call.arguments) for call in reply.calls)]
    blocks = [
        value for block in getattr(reader, "_blocks", {}).values() for value in block.values()
    ]
    lengths = {len(text) for text in (*contents, reader.closing_text(), *blocks) if text}
    assert TOTAL in lengths


@pytest.mark.parametrize("name", STREAMS)
def test_model_response_has_a_longest_text(name: str) -> None:
    make_agent, chunk = STREAMS[name]
    agent = make_agent()
    agent._transport.limits = Limits(text=1_000)
    with pytest.raises(AgentFailed, match="more than 1000 characters"):
        stream_chunks(agent._reader(), chunk)


def stream_chunks(reader: ResponseReader, chunk: Callable[[], dict[str, Any]]) -> ResponseReader:
    reader.decode = lambda data: chunk()  # type: ignore[method-assign]
    for _ in range(PIECES):
        reader.read(EVENT)
    return reader


def test_text_of_a_response_event_is_copied_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_EventWriter, "write", lambda *_, **__: b"")
    events = _TextEvents(_EventWriter(), "msg_1")
    for _ in range(PIECES):
        events.add(piece())
    output: list[dict[str, Any]] = []
    events.end(output)
    assert len(output[0]["content"][0]["text"]) == TOTAL
    assert CountedText.copied <= TOTAL


class ManyLines(_Child):
    """A program that has written all its lines at once."""

    async def _read_lines(self) -> list[str]:
        return ["{}"] * PIECES


def child(limits: Limits) -> ManyLines:
    watcher = StopWatcher(asyncio.Event())
    return ManyLines(
        ("true",), watcher, title="It", session_id="", limits=limits, grace=1, cwd=None, env=None
    )


@pytest.fixture
def counted_deltas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl_protocol, "decode_event", lambda *_: Delta(piece()))


@pytest.mark.usefixtures("counted_deltas")
def test_output_of_a_program_is_copied_once_and_others_run_meanwhile() -> None:
    async def stream() -> int:
        program = child(Limits())
        async with counted_turns() as turns:
            for _ in range(PIECES):
                await program.next_event()
            assert len(str(program._streamed_text)) == TOTAL
            return len(turns)

    assert asyncio.run(stream()) >= PIECES // BURST - 1
    assert CountedText.copied <= TOTAL


@pytest.mark.usefixtures("counted_deltas")
def test_answer_of_a_program_has_a_longest_text() -> None:
    async def stream() -> None:
        program = child(Limits(text=1_000))
        for _ in range(PIECES):
            await program.next_event()

    with pytest.raises(AgentFailed, match="It has more than 1000 characters"):
        asyncio.run(stream())


class Endpoint(HttpAgent):
    """An endpoint that sends its deltas at once, and then breaks off."""

    async def _attempt(self, body: Any, watcher: Any) -> AsyncIterator[Any]:  # type: ignore[override]
        for _ in range(PIECES):
            yield Delta(piece())


def endpoint_error(limits: Limits) -> AgentError:
    async def no_history(**_: Any) -> list[dict[str, Any]]:
        return []

    async def stream() -> None:
        agent = Endpoint(HttpAgentOptions(url="http://127.0.0.1:9/", limits=limits))
        async for _ in agent.run(Request(text="hello", history=no_history)):
            pass

    with pytest.raises(AgentError) as caught:
        asyncio.run(stream())
    return caught.value


def test_text_of_an_endpoint_is_copied_once() -> None:
    problem = endpoint_error(Limits())
    assert len(problem.partial or "") == TOTAL
    assert CountedText.copied <= TOTAL


def test_answer_of_an_endpoint_has_a_longest_text() -> None:
    problem = endpoint_error(Limits(text=1_000))
    assert "has more than 1000 characters" in str(problem)


def test_others_run_while_a_chunk_has_many_events() -> None:
    class Response:
        is_event_stream = True

        @property
        async def chunks(self) -> AsyncIterator[bytes]:
            yield b"data: {}\n\n" * PIECES

    async def stream() -> int:
        async with counted_turns() as turns:
            events = [event async for event in model_agent._read_events(Response())]  # type: ignore[arg-type]
            assert len(events) == PIECES
            return len(turns)

    assert asyncio.run(stream()) >= PIECES // BURST - 1


@asynccontextmanager
async def counted_turns() -> AsyncIterator[list[None]]:
    """Count how often another task gets the event loop."""
    turns: list[None] = []

    async def count() -> None:
        while True:
            turns.append(None)
            await asyncio.sleep(0)

    task = asyncio.ensure_future(count())
    try:
        yield turns
    finally:
        task.cancel()


def test_default_limit_fits_the_longest_answers_of_models() -> None:
    tokens = 128_000
    assert 5 * tokens <= Limits().text <= 20 * tokens
    assert Limits().size >= 250 * tokens


def test_drafts_in_a_chat_are_copied_once() -> None:
    """Platforms that show the answer while it is written get all of it with each draft."""

    class Drafting(App):
        draft_seconds = 1.0

        async def show(self, source: Source, shown: StreamUpdate) -> None:
            await super().show(source, shown)

    async def play() -> None:
        turn = TurnProgress(Drafting(), Source("telegram", "42", user_id="42"), "1")
        for _ in range(PIECES):
            await turn.add(piece())
        assert CountedText.copied <= 4 * TOTAL
        await turn._draft()
        assert len(turn._drafted) == TOTAL

    asyncio.run(play())


def test_others_run_while_an_mcp_server_writes_much() -> None:
    async def play() -> int:
        output, errors = asyncio.StreamReader(), asyncio.StreamReader()
        output.feed_data(b'{"jsonrpc": "2.0", "method": "notifications/message"}\n' * PIECES)
        for stream in (output, errors):
            stream.feed_eof()
        process: Any = SimpleNamespace(stdout=output, stderr=errors, stdin=None)
        connection = StdioConnection("noisy", process)
        rounds = 0
        while not connection._closed.is_set():
            await asyncio.sleep(0)
            rounds += 1
        await asyncio.gather(*connection._tasks)
        return rounds

    assert asyncio.run(play()) >= PIECES // BURST
