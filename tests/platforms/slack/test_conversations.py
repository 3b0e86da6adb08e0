"""Whole conversations: a real gateway, the Slack adapter, and a Slack on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tertulia import aio
from tertulia.agents.base import Agent
from tertulia.gateway.app import Gateway
from tertulia.gateway.settings import GatewaySettings
from tertulia.platforms.slack.adapter import SlackAdapter
from tests.gateway.running_gateway import FAST, OPEN, Echo
from tests.servers.slack import APP_TOKEN, BOT_TOKEN, SlackServer

RULES = GatewaySettings(gather_seconds=0, platforms={"slack": OPEN})


@pytest.fixture
def server() -> Iterator[SlackServer]:
    with SlackServer() as running:
        yield running
    assert running.violations == []
    assert running.pings == []


def connected(server: SlackServer, **options: Any) -> SlackAdapter:
    options = {"app_token": APP_TOKEN, "connections": 1, **options}
    return SlackAdapter(BOT_TOKEN, base_url=f"{server.url}/api", **options)


@asynccontextmanager
async def running(
    folder: Path, agent: Agent, *adapters: SlackAdapter, settings: GatewaySettings = RULES
) -> AsyncIterator[aio.Store]:
    """Run a gateway with these accounts."""
    async with aio.open(folder / "talk.db", settings=FAST) as store:
        gateway = Gateway(store, agent, list(adapters), settings=settings)
        serving = asyncio.create_task(gateway.run())
        try:
            async with asyncio.timeout(60):
                yield store
        finally:
            gateway.stop()
            await serving


def play(
    folder: Path,
    server: SlackServer,
    act: Callable[[aio.Store], Awaitable[None]],
    agent: Agent | None = None,
) -> None:
    async def run() -> None:
        async with running(folder, agent or Echo(), connected(server)) as store:
            await act(store)

    asyncio.run(run())


async def sent(server: SlackServer, count: int) -> list[str]:
    await asyncio.to_thread(server.wait_sent, count)
    return server.texts


def test_message_is_answered(tmp_path: Path, server: SlackServer) -> None:
    async def act(store: aio.Store) -> None:
        server.write("D1", "hola")
        assert await sent(server, 1) == ["re hola"]
        (session,) = (await store.sessions.find()).items
        assert session.key == "agent:main:slack:dm:D1"
        assert session.origin.user_name == "Name of UANA"

    play(tmp_path, server, act)
