"""Agents that stand in for another: when, for whom, and what is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from tertulia import Source
from tertulia.agents.base import Delta, Event, Note, Request, Step, Tool, ToolResult
from tertulia.agents.fallback import FallbackAgent
from tertulia.core.history.model_traits import ModelTraits
from tertulia.core.message import ToolCall
from tertulia.errors import (
    AgentError,
    AgentFailed,
    AgentStopped,
    AgentTimeout,
    AgentUnavailable,
    ContextOverflow,
)
from tertulia.testing.scripted_gateway import ScriptedGateway
from tests.agents.agent_fixtures import run_turn


class Model:
    """An agent that fails as often as it is told, at a point of its run."""

    def __init__(self, name: str, *problems: AgentError, after: str = "", **traits: Any) -> None:
        self.name = name
        self.problems = list(problems)
        self.after = after
        self.runs = 0
        self.traits = ModelTraits(name, **traits)
        self.history_tokens: int | None = None

    async def run(self, request: Request) -> AsyncGenerator[Event, None]:
        self.runs += 1
        history = await request.history()
        if self.problems and self.after == "text":
            yield Delta("half")
        if self.problems and self.after == "tools" and history[-1]["role"] != "tool":
            yield Step(None, (ToolCall("c1", "echo", {"word": "x"}),))
            yield ToolResult("c1", "x")
        if self.problems:
            raise self.problems.pop(0)
        yield Step(f"{self.name}: {len(history)}")

    async def close(self) -> None:
        pass


@pytest.fixture
def gateway(tmp_path: Path) -> ScriptedGateway:
    return ScriptedGateway(tmp_path)


@pytest.mark.parametrize(
    "problem",
    [
        AgentUnavailable("down"),
        AgentTimeout("slow"),
        AgentFailed("key", status=401),
        AgentFailed("money", status=402),
        AgentFailed("right", status=403),
        AgentFailed("rate", status=429),
    ],
)
def test_another_agent_answers_and_the_person_is_told(
    gateway: ScriptedGateway, problem: AgentError
) -> None:
    agent = FallbackAgent([Model("big", problem), Model("small")])
    recorded = run_turn(gateway, agent)
    assert recorded.answer == "small: 1"
    assert recorded.notes == ["big cannot be reached now, so small answers."]


@pytest.mark.parametrize(
    "problem",
    [AgentFailed("bad request", status=400), AgentFailed("bug"), ContextOverflow("long"),
     AgentStopped("stopped")],
)  # fmt: skip
def test_other_failures_are_reported(gateway: ScriptedGateway, problem: AgentError) -> None:
    other = Model("small")
    assert run_turn(gateway, FallbackAgent([Model("big", problem), other])).problem is problem
    assert other.runs == 0


def test_nothing_is_shown_twice(gateway: ScriptedGateway) -> None:
    problem, other = AgentUnavailable("broke off"), Model("small")
    agent = FallbackAgent([Model("big", problem, after="text"), other])
    assert run_turn(gateway, agent).problem is problem
    assert other.runs == 0


def test_tools_are_not_run_twice(gateway: ScriptedGateway) -> None:
    """The other agent continues after the results that are stored."""

    async def echo(arguments: dict[str, Any]) -> str:
        return "x"

    gateway.tools = (Tool("echo", "Echoes.", {"type": "object"}, echo),)
    agent = FallbackAgent([Model("big", AgentUnavailable("down"), after="tools"), Model("small")])
    recorded = run_turn(gateway, agent)
    assert recorded.answer == "small: 3"
    assert len(recorded.results) == 1


def test_first_error_is_reported_if_all_fail(gateway: ScriptedGateway) -> None:
    first, second = AgentUnavailable("the cause"), AgentUnavailable("another")
    agent = FallbackAgent([Model("big", first), Model("small", second)])
    assert run_turn(gateway, agent).problem is first


def test_agent_that_does_not_fit_is_not_asked(gateway: ScriptedGateway) -> None:
    blind, short = Model("blind", sees_images=False), Model("short")
    short.history_tokens = 1000
    problem = AgentUnavailable("down")
    agent = FallbackAgent([Model("big", problem), blind, short])
    assert run_turn(gateway, agent).problem is problem
    assert (blind.runs, short.runs) == (0, 0)


def test_first_agent_rests_after_a_failure_and_comes_back(gateway: ScriptedGateway) -> None:
    now = 1000.0
    first = Model("big", AgentUnavailable("down"), AgentUnavailable("still"))
    agent = FallbackAgent([first, Model("small")], now=lambda: now)
    answers = []
    for seconds in (0, 29, 2, 59, 2, 1):
        now += seconds
        answers.append(str(run_turn(gateway, agent).answer).partition(":")[0])
    # 30 seconds after the first failure it is asked again, and 60 after the second.
    assert answers == ["small", "small", "small", "small", "big", "big"]
    assert first.runs == 4


@pytest.mark.parametrize("chat_id", ["-1", "dm"])
def test_groups_are_not_told(tmp_path: Path, chat_id: str) -> None:
    source = Source("telegram", chat_id, chat_type="group", user_id="7")
    group = ScriptedGateway(tmp_path, source=source)
    agent = FallbackAgent([Model("big", AgentUnavailable("down")), Model("small")])
    recorded = run_turn(group, agent)
    assert recorded.answer == "small: 1"
    assert recorded.notes == []


def test_change_is_told_once_in_a_session() -> None:
    """By the name of the note: the gateway delivers a name once."""
    agent = FallbackAgent([Model("big", *[AgentUnavailable("down")] * 3), Model("small")])

    async def notes() -> set[str | None]:
        async def history(**_: Any) -> list[dict[str, Any]]:
            return [{"role": "user", "content": "hi"}]

        request = Request(text="hi", history=history, key="agent:main:telegram:dm:1")
        events: list[Event] = []
        for _ in range(3):
            events += [event async for event in agent.run(request)]
        return {event.once for event in events if isinstance(event, Note)}

    assert len(asyncio.run(notes())) == 1
