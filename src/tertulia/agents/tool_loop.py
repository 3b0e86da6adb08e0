"""Ask, run the tools that were called, ask again: until there is an answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from tertulia.agents import tools
from tertulia.agents.base import Delta, Event, Request, Step
from tertulia.agents.cancellation import StopWatcher

# Gives the events of one step, the step last.
Ask = Callable[[Request, StopWatcher], AsyncGenerator[Event, None]]


async def exchange(
    ask: Ask, request: Request, *, max_steps: int, tool_seconds: float
) -> AsyncGenerator[Event, None]:
    """All events of a run of an agent that is asked once for each step."""
    async with StopWatcher(request.stop) as watch:
        for _ in range(max_steps):
            step: Step | None = None
            async with aclosing(ask(request, watch)) as events:
                async for event in events:
                    if isinstance(event, Step):
                        step = event
                    yield event
            if step is None or not step.tool_calls:
                return
            found = tools.results(step.tool_calls, request.tools, watch, seconds=tool_seconds)
            async with aclosing(found) as results:
                async for result in results:
                    yield result
        for event in gave_up(max_steps):
            yield event


def gave_up(steps: int) -> list[Event]:
    """The plain answer of an agent that has used its steps."""
    text = f"I stopped after {steps} steps without coming to an end. Say “go on” and I continue."
    return [Delta(text), Step(text, extra={"stopped_by": "max_steps"})]
