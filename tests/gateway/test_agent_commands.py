"""Several agents: routes, `/agent`, `/model` and prompt files, through a running gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tertulia import Source
from tertulia.agents.base import Event, Request, Step, Tool
from tertulia.core.agent_route import AgentRoute
from tertulia.core.history.model_traits import ModelTraits
from tertulia.errors import ConfigError
from tertulia.gateway.agent_table import AgentTable, ConfiguredAgent, PromptFiles
from tests.gateway.running_gateway import ANA, BEN, CARA, FAST, App, running_gateway

GROUP = Source("telegram", "-100", chat_type="group", user_id="42", user_name="Ana")
SETTINGS = msgspec.structs.replace(
    FAST,
    agents=("support", "secret"),
    routes=(
        AgentRoute(agent="support", platform="telegram", chat="-100"),
        AgentRoute(agent="support", platform="signal"),
    ),
)


class Named:
    """An agent that answers with its name, its prompt and the length of its history."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.model = name
        self.traits = ModelTraits(name)
        self.requests: list[Request] = []
        self.is_closed = False

    async def run(self, request: Request) -> AsyncGenerator[Event, None]:
        self.requests.append(request)
        yield Step(f"{self.name}: {len(await request.history())}")

    async def close(self) -> None:
        self.is_closed = True


def _table(**options: Any) -> AgentTable:
    return AgentTable(
        [
            ConfiguredAgent(
                "main",
                Named("big"),
                models={"big": Named("big"), "small": Named("small")},
                **options,
            ),
            ConfiguredAgent("support", Named("helper"), tools=("look_*", "schedule")),
            ConfiguredAgent("secret", Named("secret"), role="owner"),
        ]
    )


def test_routes_choose_the_agent_and_agents_share_no_session(where: str) -> None:
    async def play() -> None:
        apps = [App("telegram"), App("signal")]
        async with running_gateway(where, apps=apps, agents=_table(), settings=SETTINGS) as node:
            assert await node.hears("hello") == "big: 1"
            assert await node.hears("hello", CARA) == "helper: 1"
            assert await node.say("hello", GROUP, is_addressed=True) == ["helper: 1"]
            sessions = (await node.store.sessions.find()).items
            assert sorted(session.agent for session in sessions) == ["main", "support", "support"]
            assert {session.key.split(":")[1] for session in sessions} == {"main", "support"}

    asyncio.run(play())


def test_a_member_chooses_the_agent_of_their_chat_and_a_restart_keeps_it(where: str) -> None:
    async def play() -> None:
        async with running_gateway(where, agents=_table(), settings=SETTINGS) as node:
            assert "needs the role member" in await node.hears("/agent support")
            await node.store.people.remember(ANA, role="member")
            assert await node.hears("hello") == "big: 1"
            heard = await node.hears("/agent")
            assert heard.startswith("main answers here. Others: support.")
            assert "support answers here from now on" in await node.hears("/agent support")
            assert await node.hears("hello") == "helper: 1"
            assert "There is no agent 'secret'" in await node.hears("/agent secret")
            assert await node.hears("hello", BEN) == "big: 1"
        async with running_gateway(where, agents=_table(), settings=SETTINGS) as node:
            assert await node.hears("again") == "helper: 3"
            assert "main answers here from now on" in await node.hears("/agent main")
            assert await node.hears("again") == "big: 3"

    asyncio.run(play())


def test_in_a_group_only_the_owner_chooses(where: str) -> None:
    async def play() -> None:
        async with running_gateway(where, agents=_table(), settings=SETTINGS) as node:
            await node.store.people.remember(ANA, role="member")
            await node.store.people.remember(BEN, role="owner")
            theirs = GROUP.with_fields(user_id="43")
            refused = await node.say("/agent main", GROUP, is_addressed=True)
            assert refused == ["In a group, only the owner chooses."]
            assert await node.say("hello", GROUP, is_addressed=True) == ["helper: 1"]
            (heard,) = await node.say("/agent main", theirs, is_addressed=True)
            assert "main answers here from now on" in heard
            assert await node.say("hello", GROUP, is_addressed=True) == ["big: 1"]

    asyncio.run(play())


def test_a_message_right_after_the_choice_goes_to_the_chosen_agent(where: str) -> None:
    async def play() -> None:
        async with running_gateway(where, agents=_table(), settings=SETTINGS) as node:
            await node.store.people.remember(ANA, role="member")
            await node.app.get("one")
            await node.app.get("/agent support")
            await node.app.get("two")
            await node.quiet()
            heard = node.app.to(ANA)
            assert "big: 1" in heard
            assert "helper: 1" in heard

    asyncio.run(play())


def test_the_model_is_chosen_for_one_session_and_a_restart_keeps_it(where: str) -> None:
    async def play() -> None:
        async with running_gateway(where, agents=_table(), settings=SETTINGS) as node:
            await node.store.people.remember(ANA, role="member")
            assert (await node.hears("/model")).startswith("big answers in this conversation.")
            assert "no model 'huge'" in await node.hears("/model huge")
            assert await node.hears("/model small") == (
                "small answers in this conversation from now on."
            )
            assert await node.hears("hello") == "small: 1"
        async with running_gateway(where, agents=_table(), settings=SETTINGS) as node:
            assert await node.hears("again") == "small: 3"
            assert await node.hears("/model default") == (
                "big answers in this conversation from now on."
            )
            assert await node.hears("again") == "big: 5"
            await node.hears("/model small")
            await node.hears("/new")
            assert await node.hears("hello") == "big: 1"

    asyncio.run(play())


def test_an_agent_is_offered_its_own_tools_only(where: str) -> None:
    async def call(arguments: dict[str, Any]) -> str:
        return "seen"

    tools = [
        Tool(name, "looks", {"type": "object", "properties": {}}, call)
        for name in ("look_up", "write")
    ]

    async def play() -> None:
        table = _table()
        async with running_gateway(where, agents=table, settings=SETTINGS, tools=tools) as node:
            await node.store.people.remember(ANA, role="member")
            await node.hears("hello")
            await node.hears("/agent support")
            await node.hears("hello")
        offered = {
            entry.name: {tool.name for request in entry.agent.requests for tool in request.tools}  # type: ignore[attr-defined]
            for entry in table
        }
        assert {"look_up", "write"} <= offered["main"]
        assert offered["support"] == {"look_up", "schedule"}

    asyncio.run(play())


def test_the_prompt_of_a_session_stays_when_its_files_change(where: str, tmp_path: Path) -> None:
    soul = tmp_path / "SOUL.md"
    soul.write_text("You are kind.")

    async def play() -> None:
        table = _table(prompt=PromptFiles([str(soul)]))
        async with running_gateway(where, agents=table, settings=SETTINGS) as node:
            await node.hears("one")
            soul.write_text("You are rude.")
            await node.hears("two")
            await node.hears("/new")
            await node.hears("three")
            soul.unlink()
            await node.hears("four", BEN)
        systems = [request.system for request in table.main.agent.requests]  # type: ignore[attr-defined]
        assert [system.partition("\n")[0] for system in systems] == [
            "You are kind.",
            "You are kind.",
            "You are rude.",
            "You are rude.",
        ]

    asyncio.run(play())


def test_a_closed_gateway_closes_every_agent_and_model(tmp_path: Path) -> None:
    table = _table()

    async def play() -> None:
        async with running_gateway(str(tmp_path / "talk.db"), agents=table, settings=SETTINGS):
            pass

    asyncio.run(play())
    agents = [agent for entry in table for agent in (entry.agent, *entry.models.values())]
    assert all(agent.is_closed for agent in agents)  # type: ignore[attr-defined]


def test_an_agent_that_is_gone_leaves_its_conversation_alone(where: str) -> None:
    async def play() -> None:
        async with running_gateway(where, agents=_table(), settings=SETTINGS) as node:
            await node.store.people.remember(ANA, role="member")
            await node.hears("/agent support")
            assert await node.hears("hello") == "helper: 1"
        alone = AgentTable([ConfiguredAgent("main", Named("big"))])
        async with running_gateway(where, agents=alone, settings=FAST) as node:
            assert await node.hears("hello") == "big: 1"

    asyncio.run(play())


@pytest.mark.parametrize("size", [32 * 1024, 32 * 1024 + 1])
def test_prompt_files_are_limited(tmp_path: Path, size: int) -> None:
    path = tmp_path / "SOUL.md"
    path.write_text("x" * size)
    if size <= 32 * 1024:
        assert PromptFiles([str(path)]).current() == "x" * size
        return
    with pytest.raises(ConfigError, match="more than"):
        PromptFiles([str(path)])
