"""The tool loop: one step at a time, its tools between, and a limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from tertulia import ToolCall
from tertulia.agents import Delta, Event, Request, Step, ToolResult
from tertulia.agents.cancellation import StopWatcher
from tertulia.agents.tool_loop import run_tool_loop
from tertulia.testing.agent_contract import echo

CALL = Step(None, (ToolCall("c1", "echo", {"word": "hola"}),))
RESULT = ToolResult("c1", "hola")


async def no_history(**_: Any) -> list[dict[str, Any]]:
    return []


def run_loop(*steps: Step, max_steps: int = 9) -> list[Event]:
    """Return the events of a loop whose generator yields these steps, one for each call."""
    left = list(steps)

    async def generate_step(_: Request, __: StopWatcher) -> AsyncGenerator[Event, None]:
        yield Delta("…")
        yield left.pop(0)

    async def run() -> list[Event]:
        request = Request(text="go", history=no_history, tools=(echo(),))
        events = run_tool_loop(generate_step, request, max_steps=max_steps, tool_seconds=60.0)
        return [event async for event in events]

    return asyncio.run(run())


def test_step_without_calls_is_the_answer() -> None:
    answer = Step("done")
    assert run_loop(answer, Step("never reached")) == [Delta("…"), answer]


def test_results_come_before_the_next_step() -> None:
    answer = Step("done")
    assert run_loop(CALL, answer) == [Delta("…"), CALL, RESULT, Delta("…"), answer]


def test_answer_at_the_step_limit_says_so() -> None:
    *events, delta, answer = run_loop(CALL, CALL, Step("never reached"), max_steps=2)
    assert events == [Delta("…"), CALL, RESULT] * 2
    assert isinstance(delta, Delta)
    assert isinstance(answer, Step)
    assert delta.text == answer.text
    assert "after 2 steps" in (answer.text or "")
    assert answer.extra == {"stopped_by": "max_steps"}
