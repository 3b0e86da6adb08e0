"""Every agent keeps every promise of an agent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from tertulia.agents import Agent, ParrotAgent
from tertulia.testing import AgentContract
from tertulia.testing.agent_contract import Saying
from tests.agents.scene import (
    ANTHROPIC,
    OPENAI,
    at_endpoint,
    events_of,
    moves_of,
    moving,
    ndjson,
    on_server,
)
from tests.servers.models import ModelServer


class TestParrot(AgentContract):
    @contextmanager
    def agent(self, *script: Saying) -> Iterator[Agent]:
        yield ParrotAgent()


class TestOpenAI(AgentContract):
    def agent(self, *script: Saying) -> AbstractContextManager[Agent]:
        return on_server(OPENAI, script)


class TestAnthropic(AgentContract):
    def agent(self, *script: Saying) -> AbstractContextManager[Agent]:
        return on_server(ANTHROPIC, script)


class TestCommand(AgentContract):
    reports_usage = False

    @contextmanager
    def agent(self, *script: Saying) -> Iterator[Agent]:
        yield moving(*moves_of(script))


class TestHttp(AgentContract):
    reports_usage = False

    @contextmanager
    def agent(self, *script: Saying) -> Iterator[Agent]:
        with ModelServer() as server:
            server.script(*(ndjson(*events_of(saying)) for saying in script))
            yield at_endpoint(server)
