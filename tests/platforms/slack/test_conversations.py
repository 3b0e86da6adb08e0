"""Whole conversations: a real gateway, the Slack adapter, and a Slack on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tertulia import aio
from tertulia.agents.base import Agent, Event, Request, Step
from tertulia.core.backoff import Backoff
from tertulia.gateway import retries
from tertulia.gateway.app import Gateway
from tertulia.gateway.settings import GatewaySettings
from tertulia.platforms.slack import adapter as adapter_module
from tertulia.platforms.slack import socket_mode
from tertulia.platforms.slack.adapter import SlackAdapter
from tertulia.records.queues import base as queues
from tests.gateway.running_gateway import FAST, OPEN, Echo, Scripted, until
from tests.http.served_gateway import served_gateway
from tests.servers.scripted_http import Fault
from tests.servers.slack import (
    APP_TOKEN,
    BOT,
    BOT_TOKEN,
    SIGNING_SECRET,
    SlackServer,
    rate_limit,
)

# With a single try, a failure that uses one up makes a dead letter at once.
RULES = GatewaySettings(gather_seconds=0, sends=1, platforms={"slack": OPEN})


@pytest.fixture
def server() -> Iterator[SlackServer]:
    with SlackServer() as running:
        yield running
    assert running.violations == []
    assert running.pings == []


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (adapter_module, socket_mode):
        monkeypatch.setattr(module, "_RECONNECT", Backoff(first=0.02, longest=0.2))
    monkeypatch.setattr(retries, "ACCOUNT_BACKOFF", Backoff(first=0.05, longest=0.2))
    monkeypatch.setattr(queues, "_POLL_SECONDS", 0.1)


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


def saying(text: str) -> Scripted:
    async def script(request: Request) -> AsyncGenerator[Event, None]:
        yield Step(text)

    return Scripted(script)


def test_long_formatted_answer_arrives_whole(tmp_path: Path, server: SlackServer) -> None:
    answer = "# Title\n\n**bold** <!here> @ana\n\n```py\n" + "print(1)\n" * 2000 + "```\nthe end"

    async def act(store: aio.Store) -> None:
        server.write("D1", "hola")
        await until(lambda: "the end" in "".join(server.texts), "all parts")
        (session,) = (await store.sessions.find()).items
        assert (await store.transcript(session.id).load())[-1]["content"] == answer

    play(tmp_path, server, act, saying(answer))
    assert len(server.sent) > 1
    assert server.texts[0].startswith("# Title\n\n**bold**")
    assert "".join(server.texts).count("print(1)") == 2000


def test_mention_is_answered_once_and_in_its_thread(tmp_path: Path, server: SlackServer) -> None:
    async def act(store: aio.Store) -> None:
        parent = server.message("C1", "UBEN", "parent")["ts"]
        server.write("C1", f"<@{BOT}> here", thread=parent)
        server.write("C1", f"<@{BOT}> there")
        server.write("C1", "not for the app")
        await asyncio.to_thread(server.wait_settled)
        await sent(server, 2)
        server.write("D1", "last")
        await sent(server, 3)
        assert {(message.text, message.thread) for message in server.sent} == {
            ("re @\u2060tertulia here", parent),
            ("re @\u2060tertulia there", None),
            ("re last", None),
        }
        keys = {session.key for session in (await store.sessions.find()).items}
        assert f"agent:main:slack:channel:C1:{parent}:UANA" in keys

    play(tmp_path, server, act)


def test_slow_turn_is_acknowledged_at_once_and_runs_once(
    tmp_path: Path, server: SlackServer
) -> None:
    """Work inside the three seconds: the same message ran six times."""
    turns: list[str] = []

    async def script(request: Request) -> AsyncGenerator[Event, None]:
        turns.append(request.text)
        await asyncio.to_thread(server.wait_settled)
        yield Step("done")

    async def act(store: aio.Store) -> None:
        message = server.write("D1", "work")
        server.push(message)
        await sent(server, 1)
        server.push(message)
        await asyncio.to_thread(server.wait_settled)

    play(tmp_path, server, act, Scripted(script))
    assert (turns, server.texts) == (["work"], ["done"])


def test_revoked_token_makes_no_dead_letters(tmp_path: Path, server: SlackServer) -> None:
    async def act(store: aio.Store) -> None:
        server.write("D1", "first")
        await sent(server, 1)
        server.revoke()
        for number in range(10):
            server.add_channel(f"D{number % 3}")
            await store.outbox.put(f"waiting {number}", f"slack:D{number % 3}")
        await asyncio.to_thread(server.wait, lambda: server.count("chat.postMessage") > 2)
        assert not (await store.outbox.find(state="dead")).items
        server.restore()
        await sent(server, 11)
        server.write("D1", "last")
        await until(lambda: "re last" in server.texts, "it listens again")
        assert not (await store.outbox.find(state="dead")).items

    play(tmp_path, server, act)
    assert len(set(server.texts)) == 12


def test_answer_survives_every_pause_that_slack_asks_for(
    tmp_path: Path, server: SlackServer
) -> None:
    async def act(store: aio.Store) -> None:
        server.spoil("chat.postMessage", *[rate_limit(0.1)] * 4)
        server.write("D1", "hola")
        assert await sent(server, 1) == ["re hola"]

    play(tmp_path, server, act)


def test_send_without_a_clear_answer_is_unknown_and_not_repeated(
    tmp_path: Path, server: SlackServer
) -> None:
    async def act(store: aio.Store) -> None:
        server.spoil("chat.postMessage", Fault(takes=True, end="cut"))
        server.write("D1", "hola")
        await sent(server, 1)
        server.write("D1", "and then")
        await sent(server, 2)
        (unknown,) = (await store.outbox.find(state="unknown")).items
        assert unknown.body["text"] == "re hola"

    play(tmp_path, server, act)
    assert server.texts == ["re hola", "re and then"]


def test_other_bots_are_ignored(tmp_path: Path, server: SlackServer) -> None:
    async def act(store: aio.Store) -> None:
        for number in range(25):
            server.write("C1", f"<@{BOT}> {number}", user="UROBOT", bot_id="B9")
        server.write("C1", f"<@{BOT}> hola")
        await sent(server, 1)
        await asyncio.to_thread(server.wait_settled)

    play(tmp_path, server, act)
    assert server.texts == ["re @\u2060tertulia hola"]


def test_file_reaches_the_agent_and_a_large_one_is_told(
    tmp_path: Path, server: SlackServer
) -> None:
    agent = Echo()

    async def act(store: aio.Store) -> None:
        small, endless = server.add_file(b"\x89PNG\r\n\x1a\n small"), server.add_file(None)
        server.write("D1", "see", files=[small])
        await sent(server, 1)
        server.write("D1", "this too", files=[endless])
        await sent(server, 3)
        (session,) = (await store.sessions.find()).items
        stored = [m for m in await store.transcript(session.id).load() if m.get("media")]
        assert stored[0]["media"][0]["type"] == "image/png"
        assert await store.media.get(stored[0]["media"][0]["hash"]) == b"\x89PNG\r\n\x1a\n small"

    play(tmp_path, server, act, agent)
    assert len(agent.asked) == 2
    assert any("larger than" in text for text in server.texts)


def test_file_of_the_agent_is_sent(tmp_path: Path, server: SlackServer) -> None:
    async def act(store: aio.Store) -> None:
        server.add_channel("C1")
        media = await store.media.put(b"%PDF-1.7", name="plan.pdf")
        await store.outbox.put("the plan", "slack:C1", media=media)
        await sent(server, 1)

    play(tmp_path, server, act)
    assert server.sent[0].file == ("plan.pdf", b"%PDF-1.7")
    assert server.texts == ["the plan"]


def test_stranger_gets_a_code_and_commands_work(tmp_path: Path, server: SlackServer) -> None:
    async def run() -> None:
        settings = GatewaySettings()
        async with running(tmp_path, Echo(), connected(server), settings=settings) as store:
            server.write("D1", "hola")
            (text,) = await sent(server, 1)
            await store.people.approve(text.splitlines()[0].rpartition(" ")[2])
            server.write("D1", "again")
            assert (await sent(server, 2))[-1] == "re again"
            server.write("D1", "!whoami")
            assert "Name of UANA" in (await sent(server, 3))[-1]
            server.write("D1", f"<@{BOT}> /new")
            assert "new conversation" in (await sent(server, 4))[-1]

    asyncio.run(run())


def test_two_gateways_share_one_account(tmp_path: Path, server: SlackServer) -> None:
    """Both listen; each event reaches one of them, repeated ones are answered once."""

    async def run() -> None:
        async with (
            running(tmp_path, Echo(), connected(server)),
            running(tmp_path, Echo(), connected(server)) as store,
        ):
            await asyncio.to_thread(server.wait_sockets, 2)
            for number in range(20):
                message = server.write(f"D{number % 4}", f"m{number}")
                server.push(message)  # it reaches the other one
            await sent(server, 20)
            await asyncio.to_thread(server.wait_settled)
            assert len((await store.outbox.find(limit=100)).items) == 20

    asyncio.run(run())
    assert sorted(server.texts) == sorted(f"re m{number}" for number in range(20))


def test_two_workspaces_are_two_accounts(tmp_path: Path, server: SlackServer) -> None:
    server.add_workspace("T2", "xoxb-2-fake")
    second = SlackAdapter(
        "xoxb-2-fake", app_token=APP_TOKEN, account="second", base_url=f"{server.url}/api"
    )

    async def run() -> None:
        async with running(tmp_path, Echo(), connected(server), second) as store:
            server.write("D1", "to the first")
            server.write("D1", "to the second", team="T2")
            await sent(server, 2)
            assert {(message.team, message.text) for message in server.sent} == {
                ("T1", "re to the first"),
                ("T2", "re to the second"),
            }
            assert await store.sessions.count() == 2

    asyncio.run(run())


def test_events_api_through_the_server_of_the_gateway(tmp_path: Path, server: SlackServer) -> None:
    adapter = SlackAdapter(BOT_TOKEN, signing_secret=SIGNING_SECRET, base_url=f"{server.url}/api")
    with served_gateway(tmp_path / "talk.db", agent=Echo(), adapters=[adapter], rules=RULES) as web:
        server.http_target = f"{web.url}/platforms/slack"
        server.pauses = (0.05,) * 200
        server.write("C1", f"<@{BOT}> hola")
        server.wait_sent(1)
        server.wait_settled()
    assert server.texts == ["re @\u2060tertulia hola"]
