"""Runs the tool calls of a step concurrently; results come in the order of the calls.

Every failure of a tool becomes its result, so that the model reads it and can correct its call.
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
from tertulia.core.tool_result import limit_result
from tertulia.errors import Error

log = logging.getLogger("tertulia.agents")

_MAX_REPORTED_FAULTS = 5
# A cancelled tool has this long to clean up.
_GRACE_SECONDS = 5.0
_CANCELLED = "Error: the tool was cancelled; whether it had any effect is not known."


async def run_tools(
    calls: Sequence[ToolCall], tools: Sequence[Tool], watcher: StopWatcher, *, seconds: float
) -> AsyncGenerator[ToolResult, None]:
    """Yield one result for each call, as soon as all results before it are ready.

    On stop, yield the results of the tools that have finished, cancel the others and raise
    `AgentStopped`.
    """
    tools_by_name = {tool.name: tool for tool in tools}
    tasks = [asyncio.create_task(_run_call(call, tools_by_name, seconds)) for call in calls]
    try:
        for call, task in zip(calls, tasks, strict=True):
            await watcher.wait_done(task)
            if task.done():
                yield ToolResult(call.id, *limit_result(_result_of(task)))
        watcher.check()
    finally:
        await _cancel([task for task in tasks if not task.done()])


async def _cancel(tasks: Sequence[asyncio.Task[Content]]) -> None:
    """Cancel the tasks of tools, and wait a short time for them."""
    for task in tasks:
        task.cancel()
    if tasks and (await asyncio.wait(tasks, timeout=_GRACE_SECONDS))[1]:
        log.warning(
            "a cancelled tool is still running after %g s, not waiting for it", _GRACE_SECONDS
        )


def with_distinct_ids(calls: Iterable[ToolCall]) -> tuple[ToolCall, ...]:
    """Return the calls, each with an id of its own.

    Some servers send no ids, or the same id for all calls of a step.
    """
    calls_by_id: dict[str, ToolCall] = {}
    for index, call in enumerate(calls):
        call_id = call.id or f"call_{index}"
        while call_id in calls_by_id:
            call_id += f"_{index}"
        calls_by_id[call_id] = ToolCall(call_id, call.name, call.arguments)
    return tuple(calls_by_id.values())


def _result_of(task: asyncio.Task[Content]) -> Content:
    # A tool that cancels itself has failed; nothing here has cancelled this task.
    return _CANCELLED if task.cancelled() else task.result()


async def _run_call(call: ToolCall, tools_by_name: Mapping[str, Tool], seconds: float) -> Content:
    """Return the result of a call, or the reason why it has none as a text for the model."""
    tool = tools_by_name.get(call.name)
    if tool is None:
        names = ", ".join(sorted(tools_by_name)) or "none"
        return f"Error: there is no tool {call.name!r}. Available: {names}."
    arguments = _decode_arguments(call)
    if isinstance(arguments, str):
        return arguments
    if faults := json_schema.find_violations(tool.parameters, arguments):
        listed = "; ".join(faults[:_MAX_REPORTED_FAULTS])
        return f"Error: invalid arguments of {call.name}: {listed}. Correct them and call it again."
    return await _call_tool(tool, arguments, seconds)


def _decode_arguments(call: ToolCall) -> dict[str, Any] | str:
    """Return the arguments, or an error message for the model if they are not a JSON object."""
    arguments: Any = call.arguments
    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments.strip() or "{}")
        except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
            return (
                f"Error: the arguments of {call.name} are not valid JSON ({problem})."
                " Call it again with one JSON object."
            )
    if not isinstance(arguments, Mapping):
        return (
            f"Error: the arguments of {call.name} are not a JSON object."
            " Call it again with one JSON object."
        )
    return dict(arguments)


async def _call_tool(tool: Tool, arguments: dict[str, Any], seconds: float) -> Content:
    try:
        async with asyncio.timeout(seconds) as timeout:
            value: Any = await tool.call(arguments)
        return value if isinstance(value, str | list) else to_json(value)
    except TimeoutError as problem:
        if timeout.expired():
            return f"Error: {tool.name} took longer than {seconds:g} seconds and was cancelled."
        return _failure_text(tool, problem)
    except Exception as problem:  # noqa: BLE001 — a tool is foreign code: its exception is its result
        return _failure_text(tool, problem)


def _failure_text(tool: Tool, problem: Exception) -> str:
    """Log the failure of a tool and return its result for the model."""
    log.warning(
        "tool %s failed, the model gets the error as its result", tool.name, exc_info=problem
    )
    reason = str(problem) if isinstance(problem, Error) else f"{type(problem).__name__}: {problem}"
    return f"Error: {tool.name} failed: {reason}"
