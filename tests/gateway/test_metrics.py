"""Metrics: each turn and each model call is counted once, with its platform."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from tertulia.agents.base import Event, ModelUsage, Request, Step
from tertulia.core.usage import Usage
from tertulia.errors import AgentFailed
from tests.gateway.running_gateway import Scripted, running_gateway


class CountingMetrics:
    """Keeps every call."""

    def __init__(self) -> None:
        self.turns: list[tuple[str, str]] = []
        self.usages: list[tuple[str, int]] = []

    def turn_ended(self, platform: str, outcome: str, seconds: float) -> None:
        assert seconds >= 0
        self.turns.append((platform, outcome))

    def usage_stored(self, platform: str, usage: Usage) -> None:
        self.usages.append((platform, usage.input))


def test_turns_and_model_calls_are_counted(where: str) -> None:
    async def script(request: Request) -> AsyncGenerator[Event, None]:
        yield ModelUsage(Usage(7, 1))
        if request.text == "fail":
            raise AgentFailed("no answer")
        yield Step("hello", usage=Usage(10, 2))

    async def play() -> None:
        metrics = CountingMetrics()
        async with running_gateway(where, Scripted(script)) as node:
            node.gateway.pipeline.metrics = metrics
            await node.say("one")
            await node.say("fail")
            await node.say("/status")  # a command is no turn
        assert metrics.turns == [("telegram", "answered"), ("telegram", "interrupted")]
        assert metrics.usages == [("telegram", 7), ("telegram", 10), ("telegram", 7)]

    asyncio.run(play())
