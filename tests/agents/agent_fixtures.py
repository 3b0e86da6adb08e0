"""Agents for the tests, with fake servers and programs, and a function that runs one turn."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tertulia.agents import (
    Agent,
    AnthropicAgent,
    AnthropicOptions,
    CommandAgent,
    CommandAgentOptions,
    HttpAgent,
    HttpAgentOptions,
    OpenAIAgent,
    OpenAIOptions,
)
from tertulia.agents.agent_options import ModelOptions
from tertulia.testing.agent_contract import ScriptStep
from tertulia.testing.scripted_gateway import RecordedEvents, ScriptedGateway
from tests.servers.models import Call, ModelServer, Reply, anthropic, openai

KEY = "sk-very-secret-0123456789"
PROGRAM_PATH = Path(__file__).with_name("scripted_program.py")
TIMEOUT_SECONDS = 60.0


class RecordedSleep:
    """A `sleep` that returns at once and records the delays."""

    def __init__(self) -> None:
        self.delays: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.delays.append(seconds)
        await asyncio.sleep(0)


class Provider(NamedTuple):
    """A model provider: its agent, and the streamed and whole replies of its server."""

    name: str
    make: Callable[..., Agent]
    options: Callable[..., ModelOptions]
    says: Callable[..., Reply]
    whole: Callable[..., Reply]

    def agent(self, server: ModelServer, **options: Any) -> Agent:
        sleep = options.pop("sleep", None) or RecordedSleep()
        values = {"model": "test-1", "base_url": server.url, "api_key": KEY, **options}
        return self.make(self.options(**values), sleep=sleep, chance=lambda: 0.0)


OPENAI = Provider("openai", OpenAIAgent, OpenAIOptions, openai.says, openai.whole)
ANTHROPIC = Provider("anthropic", AnthropicAgent, AnthropicOptions, anthropic.says, anthropic.whole)


def run_turn(
    gateway: ScriptedGateway, agent: Agent, text: str = "hello", **options: Any
) -> RecordedEvents:
    """Run one turn in an event loop of its own."""
    if not gateway.stop.is_set():
        gateway.stop = asyncio.Event()  # the previous event belongs to another loop

    async def run() -> RecordedEvents:
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                return await gateway.say(agent, text, **options)
        finally:
            await agent.close()

    return asyncio.run(run())


def provider_replies(provider: Provider, script: Sequence[ScriptStep]) -> list[Reply]:
    return [
        provider.says(
            saying.text, *(Call(call.id, call.name, str(call.arguments)) for call in saying.calls)
        )
        for saying in script
    ]


def protocol_events(saying: ScriptStep) -> list[dict[str, Any]]:
    """Return the protocol events of one step: its text as deltas, then the step."""
    calls = [
        {"id": call.id, "name": call.name, "arguments": call.arguments} for call in saying.calls
    ]
    deltas = [{"type": "delta", "text": char} for char in saying.text]
    return [*deltas, {"type": "step", "text": saying.text or None, "tool_calls": calls}]


@contextmanager
def agent_on_server(provider: Provider, script: Sequence[ScriptStep]) -> Iterator[Agent]:
    with ModelServer() as server:
        server.script(*provider_replies(provider, script))
        yield provider.agent(server)


def ndjson(*events: dict[str, Any]) -> Reply:
    lines = [json.dumps(event).encode() + b"\n" for event in events]
    return Reply(lines, kind="application/x-ndjson")


def endpoint_agent(server: ModelServer, **options: Any) -> HttpAgent:
    sleep = options.pop("sleep", None) or RecordedSleep()
    headers = {"Authorization": f"Bearer {KEY}"}
    values = HttpAgentOptions(url=f"{server.url}/agent", headers=headers, **options)
    return HttpAgent(values, sleep=sleep, chance=lambda: 0.0)


def command_agent(*moves: Sequence[Any], **options: Any) -> CommandAgent:
    """Return an agent whose program (`scripted_program.py`) makes these moves."""
    command = (sys.executable, "-I", "-S", str(PROGRAM_PATH), json.dumps(moves))
    return CommandAgent(CommandAgentOptions(command=command, **options))


def program_moves(script: Sequence[ScriptStep]) -> list[list[Any]]:
    moves: list[list[Any]] = []
    for saying in script:
        moves += [["event", event] for event in protocol_events(saying)]
        if not saying.calls:
            break
        moves.append(["results", len(saying.calls)])
    return moves
