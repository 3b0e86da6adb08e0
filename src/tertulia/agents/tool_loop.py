"""The tool loop: get a step, run its tool calls, get the next step, until there is an answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from tertulia.agents import tools
from tertulia.agents.base import Delta, Event, Request, Step
from tertulia.agents.cancellation import StopWatcher

# Yields the events of one step; the step is the last event.
StepGenerator = Callable[[Request, StopWatcher], AsyncGenerator[Event, None]]


async def run_tool_loop(
    generate_step: StepGenerator, request: Request, *, max_steps: int, tool_seconds: float
) -> AsyncGenerator[Event, None]:
    """Yield all events of a run; `generate_step` is called once for each step.

    After `max_steps` steps with tool calls the run ends with a plain answer that says so.
    """
    async with StopWatcher(request.stop) as watcher:
        for _ in range(max_steps):
            step: Step | None = None
            async with aclosing(generate_step(request, watcher)) as events:
                async for event in events:
                    if isinstance(event, Step):
                        step = event
                    yield event
            if step is None or not step.tool_calls:
                return
            running_tools = tools.run_tools(
                step.tool_calls, request.tools, watcher, seconds=tool_seconds
            )
            async with aclosing(running_tools) as results:
                async for result in results:
                    yield result
        for event in step_limit_events(max_steps):
            yield event


def step_limit_events(steps: int) -> list[Event]:
    """Return the answer of an agent that has used all its steps."""
    text = f"I stopped after {steps} steps without coming to an end. Say “go on” and I continue."
    return [Delta(text), Step(text, extra={"stopped_by": "max_steps"})]
