"""Whole conversations: a real gateway, the Discord adapter, and a server on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from tertulia import aio
from tertulia.agents.base import Agent, Delta, Event, Request, Step
from tertulia.core.backoff import Backoff
from tertulia.gateway import retries
from tertulia.gateway.app import Gateway
from tertulia.gateway.settings import GatewaySettings
from tertulia.platforms.discord import event_listener
from tertulia.platforms.discord.adapter import DiscordAdapter
from tertulia.records.queues import base as queues
from tests.gateway.running_gateway import FAST, OPEN, Echo, Scripted, until
from tests.servers.discord import DM, GENERAL, POST, THREAD, TOKEN, DiscordServer, rate_limit
from tests.servers.scripted_http import Fault

# With a single try, a failure that uses one up makes a dead letter at once.
RULES = GatewaySettings(gather_seconds=0, sends=1, platforms={"discord": OPEN})


@pytest.fixture
def server() -> Iterator[DiscordServer]:
    with DiscordServer() as running:
        yield running
    assert running.violations == []
    assert running.pings == []


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_listener, "_RECONNECT", Backoff(first=0.02, longest=0.2))
    monkeypatch.setattr(retries, "ACCOUNT_BACKOFF", Backoff(first=0.05, longest=0.2))
    monkeypatch.setattr(queues, "_POLL_SECONDS", 0.1)


@asynccontextmanager
async def running(
    folder: Path,
    agent: Agent,
    server: DiscordServer,
    settings: GatewaySettings = RULES,
    draft_seconds: float = 0.05,
) -> AsyncIterator[aio.Store]:
    adapter = DiscordAdapter(TOKEN, base_url=server.base_url, draft_seconds=draft_seconds)
    adapter.draft_delay_seconds = 0.0
    async with aio.open(folder / "talk.db", settings=FAST) as store:
        gateway = Gateway(store, agent, [adapter], settings=settings)
        serving = asyncio.create_task(gateway.run())
        try:
            async with asyncio.timeout(60):
                await asyncio.to_thread(server.wait_connected)
                yield store
        finally:
            gateway.stop()
            await serving


def play(
    folder: Path,
    server: DiscordServer,
    act: Callable[[aio.Store], Awaitable[None]],
    agent: Agent | None = None,
) -> None:
    async def run() -> None:
        async with running(folder, agent or Echo(), server) as store:
            await act(store)

    asyncio.run(run())


async def sent(server: DiscordServer, count: int) -> list[str]:
    await asyncio.to_thread(server.wait_sent, count)
    return server.texts


def saying(text: str) -> Scripted:
    async def script(request: Request) -> AsyncGenerator[Event, None]:
        yield Step(text)

    return Scripted(script)


def test_message_is_answered(tmp_path: Path, server: DiscordServer) -> None:
    async def act(store: aio.Store) -> None:
        server.write(DM, "hola_a_todos")
        assert await sent(server, 1) == ["re hola_a_todos"]
        (session,) = (await store.sessions.find()).items
        assert (session.origin.user_name, session.origin.chat_id) == ("Ana Díaz", DM)

    play(tmp_path, server, act)


def test_formatting_a_long_answer_and_mentions(tmp_path: Path, server: DiscordServer) -> None:
    answer = (
        "# Title\n\n**bold** @everyone <@42> `x`\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```py\n"
        + "print(1)\n" * 500
        + "```\nthe end"
    )

    async def act(store: aio.Store) -> None:
        server.write(DM, "hola")
        await until(lambda: "the end" in "".join(server.texts), "all parts")

    play(tmp_path, server, act, saying(answer))
    assert len(server.sent) > 1
    first = server.sent[0].content
    assert first.startswith("# Title")
    assert "**bold**" in first
    assert "|---|" not in first
    assert all(len(message.content) <= 2000 for message in server.sent)


def test_answer_stays_in_its_thread_or_post(tmp_path: Path, server: DiscordServer) -> None:
    async def act(store: aio.Store) -> None:
        for channel in (THREAD, POST, GENERAL):
            server.write(channel, f"<@900> in {channel}", mentions_bot=True)
        await sent(server, 3)
        keys = {session.key for session in (await store.sessions.find()).items}
        assert len(keys) == 3

    play(tmp_path, server, act)
    assert {(m.channel, m.content[-4:]) for m in server.sent} == {
        (THREAD, THREAD),
        (POST, POST),
        (GENERAL, GENERAL),
    }
    assert all(message.reply_to for message in server.sent)


def test_repeated_event_is_answered_once(tmp_path: Path, server: DiscordServer) -> None:
    async def act(store: aio.Store) -> None:
        message = server.write(DM, "once")
        for _ in range(3):
            server.dispatch("MESSAGE_CREATE", message)
        await sent(server, 1)
        server.dispatch("MESSAGE_CREATE", message)
        server.write(DM, "last")
        await sent(server, 2)

    play(tmp_path, server, act)
    assert server.texts == ["re once", "re last"]


def test_absence_with_and_without_a_session_loses_nothing(
    tmp_path: Path, server: DiscordServer
) -> None:
    """A new process resumes what the last one had stored; after an expiry it reads the channels."""

    async def first(store: aio.Store) -> None:
        server.write(DM, "first")
        server.write(THREAD, "<@900> first", mentions_bot=True)
        await sent(server, 2)

    async def second(store: aio.Store) -> None:
        await sent(server, 4)
        assert (server.identifies, len(server.resumes)) == (1, 1)

    async def third(store: aio.Store) -> None:
        await sent(server, 7)
        assert (server.identifies, len(server.resumes)) == (2, 1)
        server.write(DM, "last")
        await sent(server, 8)

    play(tmp_path, server, first)
    server.write(DM, "while nobody listened")
    server.write(THREAD, "<@900> in the thread", mentions_bot=True)
    play(tmp_path, server, second)
    server.expire_sessions()
    server.write(DM, "after the session")
    server.write(POST, "<@900> in the post", mentions_bot=True)
    server.write(GENERAL, "<@900> in the channel", mentions_bot=True)
    play(tmp_path, server, third)
    assert sorted(server.texts) == sorted(
        [
            "re first",
            "re <@900> first",
            "re while nobody listened",
            "re <@900> in the thread",
            "re after the session",
            "re <@900> in the post",
            "re <@900> in the channel",
            "re last",
        ]
    )
    assert 1000 not in server.closes
    assert 1001 not in server.closes


def test_command_of_the_menu_is_answered_in_its_own_message(
    tmp_path: Path, server: DiscordServer
) -> None:
    async def act(store: aio.Store) -> None:
        await until(lambda: len(server.commands) > 10, "the menu")
        server.choose("whoami")
        (text,) = await sent(server, 1)
        assert "Ana Díaz" in text
        server.choose("new")
        await sent(server, 2)
        server.choose("help", channel=GENERAL)
        await sent(server, 3)

    play(tmp_path, server, act)
    assert [item["state"] for item in server.interactions.values()] == ["answered"] * 3


@pytest.mark.check
def test_answer_survives_every_pause_that_discord_asks_for(
    tmp_path: Path, server: DiscordServer
) -> None:
    """More refusals than a delivery has tries: a pause uses up none."""

    async def act(store: aio.Store) -> None:
        server.spoil("create", *[rate_limit(0.06)] * 9)
        server.write(DM, "hola")
        assert await sent(server, 1) == ["re hola"]

    play(tmp_path, server, act)


@pytest.mark.check
def test_revoked_token_makes_no_dead_letters(tmp_path: Path, server: DiscordServer) -> None:
    async def act(store: aio.Store) -> None:
        server.write(DM, "first")
        await sent(server, 1)
        server.revoke()
        for number in range(10):
            await store.outbox.put(f"waiting {number}", f"discord:{DM}")
        await asyncio.to_thread(server.wait, lambda: server.count("create") > 2)
        assert not (await store.outbox.find(state="dead")).items
        server.token = TOKEN
        await sent(server, 11)
        server.write(DM, "last")
        await until(lambda: "re last" in server.texts, "it listens again")
        assert not (await store.outbox.find(state="dead")).items

    play(tmp_path, server, act)
    assert len(set(server.texts)) == 12


@pytest.mark.check
def test_send_without_a_clear_answer_is_repeated_and_arrives_once(
    tmp_path: Path, server: DiscordServer
) -> None:
    async def act(store: aio.Store) -> None:
        server.spoil("create", Fault(takes=True, end="cut"))
        server.write(DM, "hola")
        await asyncio.to_thread(server.wait, lambda: server.count("create") >= 2)
        server.write(DM, "and then")
        await sent(server, 2)
        states = {item.state for item in (await store.outbox.find()).items}
        assert "dead" not in states

    play(tmp_path, server, act)
    assert server.texts == ["re hola", "re and then"]


@pytest.mark.check
def test_other_bots_are_ignored(tmp_path: Path, server: DiscordServer) -> None:
    robot = {"id": "8", "username": "robot", "bot": True}

    async def act(store: aio.Store) -> None:
        for number in range(30):
            server.write(GENERAL, f"<@900> {number}", user=robot, mentions_bot=True)
        server.write(GENERAL, "<@900> hook", webhook_id="77", mentions_bot=True)
        server.write(GENERAL, "<@900> hola", mentions_bot=True)
        await sent(server, 1)

    play(tmp_path, server, act)
    assert server.texts == ["re <@900> hola"]


def test_draft_grows_into_the_answer(tmp_path: Path, server: DiscordServer) -> None:
    """One message, which is edited: no frozen half answer beside the whole one."""

    async def script(request: Request) -> AsyncGenerator[Event, None]:
        yield Delta("a half ")
        await until(lambda: server.count("create") > 0, "a draft")
        yield Delta("answer")
        await until(lambda: server.count("edit") > 0, "a second draft")
        yield Step("a half answer")

    async def act(store: aio.Store) -> None:
        server.write(DM, "hola")
        await until(lambda: server.texts == ["a half answer"], "the answer")

    play(tmp_path, server, act, Scripted(script))
    assert len(server.sent) == 1
    assert server.sent[0].content == "a half\n-# …"


def test_second_answer_does_not_overwrite_the_first(tmp_path: Path, server: DiscordServer) -> None:
    async def script(request: Request) -> AsyncGenerator[Event, None]:
        drafts = server.count("create")
        yield Delta("half of ")
        await until(lambda: server.count("create") > drafts, "a draft")
        yield Step(f"half of {request.text}")

    async def act(store: aio.Store) -> None:
        server.write(DM, "one")
        await until(lambda: server.texts == ["half of one"], "the first answer")
        server.write(DM, "two")
        await until(lambda: "half of two" in server.texts, "the second answer")

    play(tmp_path, server, act, Scripted(script))
    assert server.texts == ["half of one", "half of two"]


def test_file_that_is_too_large_is_told_and_the_turn_goes_on(
    tmp_path: Path, server: DiscordServer
) -> None:
    """A big file vanished silently."""
    agent = Echo()
    small = msgspec.structs.replace(OPEN, max_file_mb=0.2)
    settings = GatewaySettings(gather_seconds=0, platforms={"discord": small})

    async def run() -> None:
        async with running(tmp_path, agent, server, settings):
            server.write(DM, "see", attachments=[server.attach(None)])
            await sent(server, 2)

    asyncio.run(run())
    assert len(agent.asked) == 1
    assert any("larger than" in text for text in server.texts)


@pytest.mark.check
def test_stranger_gets_a_code_and_a_paired_person_an_answer(
    tmp_path: Path, server: DiscordServer
) -> None:
    async def run() -> None:
        async with running(tmp_path, Echo(), server, settings=GatewaySettings()) as store:
            server.write(DM, "hola")
            (text,) = await sent(server, 1)
            code = text.splitlines()[0].rpartition(" ")[2]
            await store.people.approve(code)
            server.write(DM, "again")
            assert (await sent(server, 2))[-1] == "re again"

    asyncio.run(run())


@pytest.mark.check
def test_deleted_message_that_waits_is_not_answered(tmp_path: Path, server: DiscordServer) -> None:
    release = asyncio.Event()

    async def script(request: Request) -> AsyncGenerator[Event, None]:
        await release.wait()
        yield Step(f"re {request.text}")

    async def act(store: aio.Store) -> None:
        server.write(DM, "first")
        await until(lambda: server.count("typing") > 0, "the first turn runs")
        withdrawn = server.write(DM, "withdrawn")
        changed = server.write(DM, "before")
        server.edit(changed, "after")
        server.delete(withdrawn)
        seq = server.seq
        await until(lambda: any(s.seq >= seq for s in server.sessions.values()), "events")
        server.write(DM, "/status")  # what comes behind the deletion is answered at once
        await sent(server, 1)
        release.set()
        await sent(server, 3)

    play(tmp_path, server, act, Scripted(script))
    assert server.texts[1:] == ["re first", "re after"]
