"""How the tests come by agents, and talk with them."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tertulia.agents import Agent, AnthropicAgent, CommandAgent, HttpAgent, OpenAIAgent
from tertulia.testing.agent_contract import Saying
from tertulia.testing.scripted_gateway import (
    RecordedEvents,
    ScriptedGateway,
)
from tests.servers.models import Call, ModelServer, Reply, anthropic, openai

KEY = "sk-very-secret-0123456789"
PROGRAM = Path(__file__).with_name("program.py")
PATIENCE = 60.0


class Naps:
    """A sleep that takes no time, and remembers how long it should have been."""

    def __init__(self) -> None:
        self.taken: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.taken.append(seconds)
        await asyncio.sleep(0)


class Wired(NamedTuple):
    """One of the model wires: its agent, and how its provider says things."""

    name: str
    make: Callable[..., Agent]
    says: Callable[..., Reply]
    whole: Callable[..., Reply]

    def agent(self, server: ModelServer, **options: Any) -> Agent:
        options = {"api_key": KEY, "sleep": Naps(), "chance": lambda: 0.0, **options}
        return self.make("test-1", base_url=server.url, **options)


OPENAI = Wired("openai", OpenAIAgent, openai.says, openai.whole)
ANTHROPIC = Wired("anthropic", AnthropicAgent, anthropic.says, anthropic.whole)


def talked(
    talk: ScriptedGateway, agent: Agent, text: str = "hello", **options: Any
) -> RecordedEvents:
    """One exchange, in a loop of its own."""
    if not talk.stop.is_set():
        talk.stop = asyncio.Event()  # the one before belongs to another loop

    async def exchange() -> RecordedEvents:
        try:
            async with asyncio.timeout(PATIENCE):
                return await talk.say(agent, text, **options)
        finally:
            await agent.close()

    return asyncio.run(exchange())


def scripted(wired: Wired, script: Sequence[Saying]) -> list[Reply]:
    return [
        wired.says(one.text, *(Call(call.id, call.name, str(call.arguments)) for call in one.calls))
        for one in script
    ]


def events_of(saying: Saying) -> list[dict[str, Any]]:
    """A step of a script as a program says it, its text streamed before."""
    calls = [
        {"id": call.id, "name": call.name, "arguments": call.arguments} for call in saying.calls
    ]
    deltas = [{"type": "delta", "text": char} for char in saying.text]
    return [*deltas, {"type": "step", "text": saying.text or None, "tool_calls": calls}]


@contextmanager
def on_server(wired: Wired, script: Sequence[Saying]) -> Iterator[Agent]:
    with ModelServer() as server:
        server.script(*scripted(wired, script))
        yield wired.agent(server)


def ndjson(*events: dict[str, Any]) -> Reply:
    return Reply([json.dumps(one).encode() + b"\n" for one in events], kind="application/x-ndjson")


def at_endpoint(server: ModelServer, **options: Any) -> HttpAgent:
    given: dict[str, Any] = {"sleep": Naps(), "chance": lambda: 0.0, **options}
    return HttpAgent(f"{server.url}/agent", headers={"Authorization": f"Bearer {KEY}"}, **given)


def moving(*moves: Sequence[Any], **options: Any) -> CommandAgent:
    """A program that makes these moves."""
    command = [sys.executable, "-I", "-S", str(PROGRAM), json.dumps(moves)]
    return CommandAgent(command, **options)


def moves_of(script: Sequence[Saying]) -> list[list[Any]]:
    moves: list[list[Any]] = []
    for saying in script:
        moves += [["event", event] for event in events_of(saying)]
        if not saying.calls:
            break
        moves.append(["results", len(saying.calls)])
    return moves
