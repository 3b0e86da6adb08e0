"""Running the tools of a step."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia import AgentStopped, NotFound, ToolCall
from tertulia.agents import Tool, tools
from tertulia.agents.base import NO_PARAMETERS
from tertulia.agents.cancellation import StopWatcher


def result_of(call: Callable[[dict[str, Any]], Awaitable[Any]], seconds: float = 60.0) -> Any:
    tool = Tool("it", "Does it.", NO_PARAMETERS, call)

    async def run() -> Any:
        async with StopWatcher(asyncio.Event()) as watcher:
            results = tools.run_tools([ToolCall("c", "it")], [tool], watcher, seconds=seconds)
            return [result.content async for result in results]

    (content,) = asyncio.run(run())
    return content


def test_results_are_text_parts_or_json() -> None:
    async def parts(_: dict[str, Any]) -> Any:
        return [{"type": "text", "text": "a"}]

    async def value(_: dict[str, Any]) -> Any:
        return {"degrees": 21}

    async def nothing(_: dict[str, Any]) -> Any:
        return None

    async def strange(_: dict[str, Any]) -> Any:
        return object()

    assert result_of(parts) == [{"type": "text", "text": "a"}]
    assert result_of(value) == '{"degrees":21}'
    assert result_of(nothing) == "null"
    assert "cannot be stored as JSON" in result_of(strange)


def test_slow_tool_is_cancelled() -> None:
    async def wait(_: dict[str, Any]) -> str:
        await asyncio.Event().wait()
        return ""

    assert result_of(wait, seconds=0.05) == (
        "Error: it took longer than 0.05 seconds and was cancelled."
    )


def test_exceptions_become_results() -> None:
    async def late(_: dict[str, Any]) -> str:
        raise TimeoutError("the bank did not answer")

    async def ours(_: dict[str, Any]) -> str:
        raise NotFound("There is no table.", hint="Build one.")

    async def cancelled(_: dict[str, Any]) -> str:
        raise asyncio.CancelledError

    assert "the bank did not answer" in result_of(late)
    assert result_of(ours) == "Error: it failed: There is no table. Build one."
    assert "was cancelled" in result_of(cancelled)


def test_tool_that_ignores_cancellation_is_abandoned(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tools, "_GRACE_SECONDS", 0.05)
    caplog.set_level(logging.WARNING, "tertulia.agents")

    async def run() -> None:
        is_over, has_begun = asyncio.Event(), asyncio.Event()

        async def stubborn(_: dict[str, Any]) -> str:
            while not is_over.is_set():
                try:
                    has_begun.set()
                    await is_over.wait()
                except asyncio.CancelledError:
                    continue
            return ""

        tool = Tool("it", "Does it.", NO_PARAMETERS, stubborn)
        stop = asyncio.Event()
        async with StopWatcher(stop) as watcher:
            results = tools.run_tools([ToolCall("c", "it")], [tool], watcher, seconds=60.0)
            reading = asyncio.ensure_future(anext(results))
            await has_begun.wait()
            stop.set()
            with pytest.raises(AgentStopped):
                await reading
        is_over.set()
        await asyncio.sleep(0.01)

    asyncio.run(run())
    assert "a cancelled tool is still running" in caplog.text


ids = st.sampled_from(["", "a", "call_0", "call_1", "a_1", "a_1_1"])


@given(call_ids=st.lists(ids, max_size=6))
def test_call_ids_become_distinct(call_ids: list[str]) -> None:
    calls = [ToolCall(name, f"tool{at}") for at, name in enumerate(call_ids)]
    distinct_calls = tools.with_distinct_ids(calls)
    assert [call.name for call in distinct_calls] == [call.name for call in calls]
    assert len({call.id for call in distinct_calls}) == len(distinct_calls)
    assert all(call.id for call in distinct_calls)
    if len(set(call_ids)) == len(call_ids) and "" not in call_ids:
        assert list(distinct_calls) == calls
