"""Running the tools a step calls: all at once, results in the order of the calls.

Whatever goes wrong with one is its result, so that the model reads it and can do better.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from tertulia.agents import json_schema
from tertulia.agents.base import Content, Tool, ToolResult
from tertulia.agents.cancellation import StopWatcher
from tertulia.core.message import ToolCall, to_json
from tertulia.errors import Error

log = logging.getLogger("tertulia.agents")

_SHOWN_FAULTS = 5
# For a tool that was cancelled to tidy up.
_GRACE_SECONDS = 5.0
_CANCELLED = "Error: the tool was cancelled; whether it had any effect is not known."


async def results(
    calls: Sequence[ToolCall], tools: Sequence[Tool], watch: StopWatcher, *, seconds: float
) -> AsyncGenerator[ToolResult, None]:
    """One result for each call, each as soon as those before it are there.

    On stop, the tools that still run are cancelled; those that were finished have their results
    given out first.
    """
    offered = {tool.name: tool for tool in tools}
    tasks = [asyncio.create_task(_result(call, offered, seconds)) for call in calls]
    try:
        for call, task in zip(calls, tasks, strict=True):
            await watch.settle(task)
            if task.done():
                yield ToolResult(call.id, _content(task))
        watch.check()
    finally:
        await _cancel([task for task in tasks if not task.done()])


async def _cancel(tasks: Sequence[asyncio.Task[Content]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks and (await asyncio.wait(tasks, timeout=_GRACE_SECONDS))[1]:
        log.warning("a tool goes on although it was cancelled; it is not waited for")


def distinct(calls: Iterable[ToolCall]) -> tuple[ToolCall, ...]:
    """The calls with an id each: some servers give none, or the same one to all of a step."""
    taken: dict[str, ToolCall] = {}
    for place, call in enumerate(calls):
        name = call.id or f"call_{place}"
        while name in taken:
            name += f"_{place}"
        taken[name] = ToolCall(name, call.name, call.arguments)
    return tuple(taken.values())


def _content(task: asyncio.Task[Content]) -> Content:
    # A tool that cancels itself is a tool that failed; this task was not cancelled from here.
    return _CANCELLED if task.cancelled() else task.result()


async def _result(call: ToolCall, offered: Mapping[str, Tool], seconds: float) -> Content:
    tool = offered.get(call.name)
    if tool is None:
        names = ", ".join(sorted(offered)) or "none"
        return f"Error: there is no tool {call.name!r}. Available: {names}."
    arguments = _arguments(call)
    if isinstance(arguments, str):
        return arguments
    if found := json_schema.faults(tool.parameters, arguments):
        told = "; ".join(found[:_SHOWN_FAULTS])
        return f"Error: the arguments of {call.name} do not fit: {told}. Call it again, corrected."
    return await _called(tool, arguments, seconds)


def _arguments(call: ToolCall) -> dict[str, Any] | str:
    """The arguments, or what is wrong with them."""
    given: Any = call.arguments
    if isinstance(given, str):
        try:
            given = msgspec.json.decode(given.strip() or "{}")
        except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
            return (
                f"Error: the arguments of {call.name} are not valid JSON ({problem})."
                " Call it again with one JSON object."
            )
    if not isinstance(given, Mapping):
        return (
            f"Error: the arguments of {call.name} are not a JSON object."
            " Call it again with one JSON object."
        )
    return dict(given)


async def _called(tool: Tool, arguments: dict[str, Any], seconds: float) -> Content:
    try:
        async with asyncio.timeout(seconds) as limit:
            found: Any = await tool.call(arguments)
        return found if isinstance(found, str | list) else to_json(found)
    except TimeoutError as problem:
        if limit.expired():
            return f"Error: {tool.name} took longer than {seconds:g} seconds and was cancelled."
        return _told(tool, problem)
    except Exception as problem:  # noqa: BLE001 — a tool is foreign code: what it raises is its result
        return _told(tool, problem)


def _told(tool: Tool, problem: Exception) -> str:
    log.warning("tool %s failed", tool.name, exc_info=problem)
    words = str(problem) if isinstance(problem, Error) else f"{type(problem).__name__}: {problem}"
    return f"Error: {tool.name} failed: {words}"
