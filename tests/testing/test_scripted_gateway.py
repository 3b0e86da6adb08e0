"""The minimal gateway that agents are tested with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tertulia import AgentError, ToolCall, Usage
from tertulia.agents.base import Delta, Event, Note, Request, Step, ToolResult
from tertulia.testing.scripted_gateway import ScriptedGateway


class FixedAgent:
    """An agent that yields given events, and raises a given error after them."""

    name = "fixed"

    def __init__(self, *events: Event, error: AgentError | None = None) -> None:
        self._events = events
        self._error = error

    async def run(self, request: Request) -> AsyncGenerator[Event, None]:
        for event in self._events:
            yield event
        if self._error is not None:
            raise self._error

    async def close(self) -> None:
        pass


def test_every_event_is_recorded_and_stored(tmp_path: Path) -> None:
    gateway = ScriptedGateway(tmp_path)
    call = ToolCall("c1", "look", {})
    events: tuple[Event, ...] = (
        Note("working"),
        Step(None, (call,), usage=Usage(1, 1, model="m")),
        ToolResult("c1", "blue"),
        Delta("It is "),
        Delta("blue."),
        Step("It is blue.", usage=Usage(2, 2, model="m")),
    )
    recorded = asyncio.run(gateway.say(FixedAgent(*events), "the sky?"))
    assert recorded.events == list(events)
    assert (recorded.answer, recorded.shown) == ("It is blue.", "It is blue.")
    assert recorded.notes == ["working"]
    assert [usage.input for usage in recorded.usages] == [1, 2]
    assert [message["role"] for message in gateway.stored] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


def test_a_watcher_sees_each_event_after_it_is_stored(tmp_path: Path) -> None:
    gateway = ScriptedGateway(tmp_path)
    contents: list[object] = []

    async def watch(event: Event) -> None:
        contents.append(gateway.stored[-1]["content"])

    asyncio.run(gateway.say(FixedAgent(Step("hello")), "hi", watcher=watch))
    assert contents == ["hello"]


def test_the_error_of_a_run_is_recorded_and_raised_by_answer(tmp_path: Path) -> None:
    error = AgentError("The model is gone.", hint="Try again.")
    recorded = asyncio.run(ScriptedGateway(tmp_path).say(FixedAgent(error=error), "hi"))
    assert recorded.problem is error
    with pytest.raises(AgentError):
        _ = recorded.answer


def test_a_run_that_leaves_a_task_behind_fails(tmp_path: Path) -> None:
    class LeavingAgent(FixedAgent):
        async def run(self, request: Request) -> AsyncGenerator[Event, None]:
            self.task = asyncio.create_task(asyncio.sleep(60))
            yield Step("hello")

    with pytest.raises(AssertionError, match="left tasks behind"):
        asyncio.run(ScriptedGateway(tmp_path).say(LeavingAgent(), "hi"))
