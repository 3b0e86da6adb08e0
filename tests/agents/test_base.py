"""Every agent keeps the promises of the agent interface."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from tertulia import ConfigError
from tertulia.agents import Agent, Delta, Event, ParrotAgent, Request, Tool, running
from tertulia.agents.base import NO_PARAMETERS
from tertulia.testing import AgentContract
from tertulia.testing.agent_contract import ScriptStep
from tests.agents.agent_fixtures import (
    ANTHROPIC,
    OPENAI,
    agent_on_server,
    command_agent,
    endpoint_agent,
    ndjson,
    program_moves,
    protocol_events,
)
from tests.servers.models import ModelServer


class TestParrot(AgentContract):
    @contextmanager
    def agent(self, *script: ScriptStep) -> Iterator[Agent]:
        yield ParrotAgent()


class TestOpenAI(AgentContract):
    def agent(self, *script: ScriptStep) -> AbstractContextManager[Agent]:
        return agent_on_server(OPENAI, script)


class TestAnthropic(AgentContract):
    def agent(self, *script: ScriptStep) -> AbstractContextManager[Agent]:
        return agent_on_server(ANTHROPIC, script)


class TestCommand(AgentContract):
    reports_usage = False

    @contextmanager
    def agent(self, *script: ScriptStep) -> Iterator[Agent]:
        yield command_agent(*program_moves(script))


class TestHttp(AgentContract):
    reports_usage = False

    @contextmanager
    def agent(self, *script: ScriptStep) -> Iterator[Agent]:
        with ModelServer() as server:
            server.script(*(ndjson(*protocol_events(saying)) for saying in script))
            yield endpoint_agent(server)


@pytest.mark.parametrize("name", ["", "two words", "ñ", "x" * 65])
def test_invalid_tool_names_are_refused(name: str) -> None:
    async def call(_: dict[str, Any]) -> str:
        return ""

    with pytest.raises(ConfigError):
        Tool(name, "Does it.", NO_PARAMETERS, call)


def test_running_closes_a_run_that_is_left_early() -> None:
    closed: list[bool] = []

    class Endless(ParrotAgent):
        async def run(self, request: Request) -> AsyncGenerator[Event, None]:
            try:
                while True:
                    yield Delta("again")
            finally:
                closed.append(True)

    async def history(**_: Any) -> list[dict[str, Any]]:
        return []

    async def read_one_event() -> Event:
        async with running(Endless(), Request(text="go", history=history)) as events:
            return await anext(events)

    assert asyncio.run(read_one_event()) == Delta("again")
    assert closed == [True]
