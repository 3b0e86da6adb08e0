"""Request and reply: a caller waits for the answer, and may run tools of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tertulia import Source, aio
from tertulia.agents.base import Agent, Event, Request, Step, ToolResult
from tertulia.core.message import ToolCall
from tertulia.core.usage import Usage
from tertulia.errors import IllegalMove
from tertulia.gateway.adapters import Adapters
from tertulia.gateway.agent_table import AgentTable, ConfiguredAgent
from tertulia.gateway.pipeline import Pipeline
from tertulia.gateway.request_reply import AgentRequest, Responder, caller_tool
from tests.gateway.running_gateway import ANYBODY, FAST, Echo, Scripted

CALLER = Source("api", "c1", user_id="ana")
CALL = ToolCall("c1", "look", {})
LOOK = caller_tool("look", "looks", {"type": "object", "properties": {}})


def _table(agent: Agent) -> AgentTable:
    return AgentTable([ConfiguredAgent("main", agent)])


@asynccontextmanager
async def responding(where: str, agent: Agent) -> AsyncIterator[Responder]:
    """A responder on a pipeline without adapters."""
    async with aio.open(where, settings=FAST) as store:
        yield Responder(Pipeline(store, _table(agent), Adapters(), ANYBODY))


async def looking(request: Request) -> AsyncGenerator[Event, None]:
    """Call the tool once, then answer with its result."""
    history = await request.history()
    results = [message["content"] for message in history if message["role"] == "tool"]
    if results and "interrupted" not in str(results[-1]):
        yield Step(f"It is {results[-1]}.", usage=Usage(3, 1))
    else:
        yield Step(None, (CALL,), usage=Usage(5, 1))


def test_repeated_request_returns_the_stored_answer(where: str) -> None:
    async def play() -> None:
        agent = Echo()
        async with responding(where, agent) as responder:
            request = AgentRequest(source=CALLER, text="hello", message_id="1")
            first, second = await responder.answer(request), await responder.answer(request)
            assert (first.text, first.usage.input, first.is_repeated) == ("re hello", 10, False)
            assert (second.text, second.is_repeated) == ("re hello", True)
            assert agent.asked == ["hello"]
            assert not (await responder.store.outbox.find()).items  # the caller has the answer

    asyncio.run(play())


def test_past_messages_are_stored_once(where: str) -> None:
    async def play() -> None:
        agent = Echo()
        past = ({"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"})
        async with responding(where, agent) as responder:
            for number in ("1", "2"):
                await responder.answer(
                    AgentRequest(source=CALLER, text=number, message_id=number, past=past)
                )
        assert [len(history) for history in agent.histories] == [3, 5]

    asyncio.run(play())


def test_turn_continues_with_the_results_of_the_caller(where: str) -> None:
    async def play() -> None:
        async with responding(where, Scripted(looking)) as responder:
            call = await responder.answer(
                AgentRequest(source=CALLER, text="what colour?", message_id="1", tools=(LOOK,))
            )
            assert (call.text, call.tool_calls) == (None, (CALL,))
            reply = await responder.answer(
                AgentRequest(
                    source=CALLER, text=None, message_id="2", tools=(LOOK,),
                    results=(ToolResult("c1", "blue"),),
                )
            )  # fmt: skip
            assert reply.text == "It is blue."
            assert reply.session_id == call.session_id

    asyncio.run(play())


def test_results_without_a_waiting_call_are_refused(where: str) -> None:
    async def play() -> None:
        async with responding(where, Scripted(looking)) as responder:
            results = (ToolResult("c9", "blue"),)
            request = AgentRequest(source=CALLER, text=None, message_id="2", results=results)
            with pytest.raises(IllegalMove, match="c9"):
                await responder.answer(request)  # there is no conversation yet
            await responder.answer(
                AgentRequest(source=CALLER, text="what colour?", message_id="1", tools=(LOOK,))
            )
            with pytest.raises(IllegalMove, match="c9"):
                await responder.answer(request)

    asyncio.run(play())
