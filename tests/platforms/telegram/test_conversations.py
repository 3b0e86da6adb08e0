"""Whole conversations: a real gateway, the Telegram adapter, and a server on loopback."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from PIL import Image

from tertulia import Source, aio
from tertulia.agents.base import Agent, Delta, Event, Request, Step
from tertulia.core.backoff import Backoff
from tertulia.gateway import retries
from tertulia.gateway.app import Gateway
from tertulia.gateway.settings import GatewaySettings
from tertulia.platforms.telegram import adapter as adapter_module
from tertulia.platforms.telegram.adapter import TelegramAdapter
from tertulia.records.queues import base as queues
from tests.gateway.running_gateway import FAST, OPEN, Echo, Scripted, until
from tests.servers.scripted_http import Fault
from tests.servers.telegram import BOT, TOKEN, TelegramServer, rate_limit

# With a single try, a failure that uses one up makes a dead letter at once.
RULES = GatewaySettings(gather_seconds=0, sends=1, platforms={"telegram": OPEN})


@pytest.fixture
def server() -> Iterator[TelegramServer]:
    with TelegramServer() as running:
        yield running
    assert running.violations == []
    assert running.pings == []


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter_module, "_RECONNECT", Backoff(first=0.02, longest=0.2))
    monkeypatch.setattr(retries, "ACCOUNT_BACKOFF", Backoff(first=0.05, longest=0.2))
    monkeypatch.setattr(queues, "_POLL_SECONDS", 0.1)


@asynccontextmanager
async def running(
    folder: Path, agent: Agent, *servers: TelegramServer, settings: GatewaySettings = RULES
) -> AsyncIterator[aio.Store]:
    """Run a gateway with one bot for each server; the second bot has the account "second"."""
    accounts = ("", "second")
    adapters = [
        TelegramAdapter(TOKEN, base_url=server.url, account=account)
        for server, account in zip(servers, accounts, strict=False)
    ]
    async with aio.open(folder / "talk.db", settings=FAST) as store:
        gateway = Gateway(store, agent, adapters, settings=settings)
        serving = asyncio.create_task(gateway.run())
        try:
            async with asyncio.timeout(60):
                yield store
        finally:
            gateway.stop()
            await serving


def play(
    folder: Path,
    server: TelegramServer,
    act: Callable[[aio.Store], Awaitable[None]],
    agent: Agent | None = None,
) -> None:
    async def run() -> None:
        async with running(folder, agent or Echo(), server) as store:
            await act(store)

    asyncio.run(run())


async def sent(server: TelegramServer, count: int) -> list[str]:
    await asyncio.to_thread(server.wait_sent, count)
    return server.texts


def saying(text: str) -> Scripted:
    async def script(request: Request) -> AsyncGenerator[Event, None]:
        yield Step(text)

    return Scripted(script)


def test_conversation_with_formatting_and_a_long_answer(
    tmp_path: Path, server: TelegramServer
) -> None:
    answer = "# Title\n\n**bold** @someone `x`\n\n```py\n" + "print(1)\n" * 700 + "```\nthe end"

    async def act(store: aio.Store) -> None:
        server.write(42, "hola")
        await until(lambda: "the end" in "".join(server.texts), "all parts")
        (session,) = (await store.sessions.find()).items
        assert session.origin.user_name == "Ana Díaz"
        assert (await store.transcript(session.id).load())[-1]["content"] == answer

    play(tmp_path, server, act, saying(answer))
    assert len(server.sent) > 1
    assert [entity["type"] for entity in server.sent[0].entities][:3] == ["bold", "bold", "code"]
    assert server.texts[-1].endswith("the end")


def test_answer_in_a_topic_stays_there(tmp_path: Path, server: TelegramServer) -> None:
    server.forum(-100, 7, 8)

    async def act(store: aio.Store) -> None:
        for thread in (7, 8, None):
            text = f"@tertulia_bot in {thread}"
            server.write(-100, text, thread=thread, mentions=["@tertulia_bot"])
        await sent(server, 3)
        assert await store.sessions.count() == 3

    play(tmp_path, server, act)
    assert {(m.thread_id, m.text[-4:].strip()) for m in server.sent} == {
        (7, "in 7"),
        (8, "in 8"),
        (None, "None"),
    }


def test_repeated_update_is_answered_once(tmp_path: Path, server: TelegramServer) -> None:
    async def act(store: aio.Store) -> None:
        message = server.write(42, "once")
        for _ in range(3):
            server.push({"message": message})
        await sent(server, 1)
        server.push({"message": message})
        server.write(42, "last")
        await sent(server, 2)

    play(tmp_path, server, act)
    assert server.texts == ["re once", "re last"]


def _photo(number: int) -> bytes:
    """Return a small picture, another for each number."""
    file = io.BytesIO()
    Image.new("RGB", (number + 1, 1)).save(file, "JPEG")
    return file.getvalue()


def test_album_of_five_photos_is_one_turn(tmp_path: Path, server: TelegramServer) -> None:
    agent = Echo()

    async def act(store: aio.Store) -> None:
        for number in range(5):
            fields: dict[str, Any] = {"caption": "see these"} if number == 0 else {}
            photo = [{"file_id": server.add_file(_photo(number))}]
            server.write(42, photo=photo, media_group_id="13", **fields)
        await sent(server, 1)
        server.write(42, "last")
        await sent(server, 2)

    play(tmp_path, server, act, agent)
    assert len(agent.asked) == 2


def test_file_that_is_too_large_is_told_and_the_turn_goes_on(
    tmp_path: Path, server: TelegramServer
) -> None:
    """A big file vanished silently."""
    agent = Echo()
    small = msgspec.structs.replace(OPEN, max_file_mb=0.2)

    async def run() -> None:
        settings = GatewaySettings(gather_seconds=0, platforms={"telegram": small})
        async with running(tmp_path, agent, server, settings=settings):
            server.write(42, document={"file_id": server.add_file(None)}, caption="see")
            await sent(server, 2)

    asyncio.run(run())
    assert len(agent.asked) == 1
    assert any("larger than" in text for text in server.texts)


def test_answer_survives_every_pause_that_telegram_asks_for(
    tmp_path: Path, server: TelegramServer
) -> None:
    """More refusals than a delivery has tries: a pause uses up none."""

    async def act(store: aio.Store) -> None:
        server.spoil("sendMessage", *[rate_limit(0.1)] * 12)
        server.write(42, "hola")
        assert await sent(server, 1) == ["re hola"]

    play(tmp_path, server, act)


def test_revoked_token_makes_no_dead_letters(tmp_path: Path, server: TelegramServer) -> None:
    async def act(store: aio.Store) -> None:
        server.write(42, "first")
        await sent(server, 1)
        server.revoke("123456789:another-token-of-the-same-bot-x")
        for number in range(10):
            await store.outbox.put(f"waiting {number}", f"telegram:{42 + number % 3}")
            server.chats.setdefault(42 + number % 3, {"id": 42 + number % 3, "type": "private"})
        await asyncio.to_thread(server.wait, lambda: server.count("sendMessage") > 2)
        assert not (await store.outbox.find(state="dead")).items
        server.token = TOKEN
        await sent(server, 11)
        server.write(42, "last")
        await until(lambda: "re last" in server.texts, "it listens again")
        assert not (await store.outbox.find(state="dead")).items

    play(tmp_path, server, act)
    assert len(set(server.texts)) == 12


def test_send_without_a_clear_answer_is_unknown_and_not_repeated(
    tmp_path: Path, server: TelegramServer
) -> None:
    async def act(store: aio.Store) -> None:
        server.spoil("sendMessage", Fault(takes=True, end="cut"))
        server.write(42, "hola")
        await sent(server, 1)
        server.write(42, "and then")
        await sent(server, 2)
        (unknown,) = (await store.outbox.find(state="unknown")).items
        assert unknown.body["text"] == "re hola"

    play(tmp_path, server, act)
    assert server.texts == ["re hola", "re and then"]


def test_other_bots_are_ignored(tmp_path: Path, server: TelegramServer) -> None:
    robot = {"id": 8, "is_bot": True, "first_name": "Robot", "username": "robot_bot"}

    async def act(store: aio.Store) -> None:
        for number in range(30):
            server.write(-100, f"@tertulia_bot {number}", user=robot, mentions=["@tertulia_bot"])
        server.write(-100, "@tertulia_bot hola", mentions=["@tertulia_bot"])
        await sent(server, 1)

    play(tmp_path, server, act)
    assert server.texts == ["re @tertulia_bot hola".replace("@", "@\u2060")]


def test_two_bots_in_one_gateway_answer_for_themselves(
    tmp_path: Path, server: TelegramServer
) -> None:
    async def run() -> None:
        with TelegramServer() as other:
            async with running(tmp_path, Echo(), server, other) as store:
                server.write(42, "to the first")
                other.write(42, "to the second")
                assert await sent(server, 1) == ["re to the first"]
                assert await sent(other, 1) == ["re to the second"]
                assert await store.sessions.count() == 2

    asyncio.run(run())


def test_draft_grows_and_one_message_counts(
    tmp_path: Path, server: TelegramServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TelegramAdapter, "typing_seconds", 0.05)
    drafted: list[list[str]] = []  # the drafts on the server at the half of each answer

    async def script(request: Request) -> AsyncGenerator[Event, None]:
        yield Delta("a half ")
        if ":group:" in request.key:
            await until(lambda: any(chat == -100 for chat, _, _ in server.actions), "typing")
        else:
            await until(lambda: len(server.drafts) > 0, "a draft")
        drafted.append([text for _, _, text in server.drafts])
        yield Delta("answer")
        yield Step("a half answer")

    async def act(store: aio.Store) -> None:
        server.write(42, "hola")
        assert await sent(server, 1) == ["a half answer"]
        server.write(-100, "@tertulia_bot hola", mentions=["@tertulia_bot"])
        assert await sent(server, 2) == ["a half answer"] * 2

    play(tmp_path, server, act, Scripted(script))
    assert drafted[0] == ["a half"]
    assert all(chat == 42 for chat, _, _ in server.drafts)


def test_stop_button_stops_the_turn(tmp_path: Path, server: TelegramServer) -> None:
    started = asyncio.Event()

    async def script(request: Request) -> AsyncGenerator[Event, None]:
        yield Delta("for ")
        started.set()
        await request.stop.wait()
        yield Step("stopped in time")

    async def act(store: aio.Store) -> None:
        message = server.write(42, "write for ever")
        await started.wait()
        server.push({"stopped_message_generation": {"chat": message["chat"], "draft_id": 1}})
        await sent(server, 1)

    play(tmp_path, server, act, Scripted(script))


def test_stranger_gets_a_code_and_a_paired_person_an_answer(
    tmp_path: Path, server: TelegramServer
) -> None:
    async def run() -> None:
        async with running(tmp_path, Echo(), server, settings=GatewaySettings()) as store:
            server.write(42, "hola")
            (text,) = await sent(server, 1)
            code = text.splitlines()[0].rpartition(" ")[2]
            await store.people.approve(code)
            server.write(42, "again")
            assert (await sent(server, 2))[-1] == "re again"

    asyncio.run(run())


def test_menu_of_the_bot_has_the_commands(tmp_path: Path, server: TelegramServer) -> None:
    async def act(store: aio.Store) -> None:
        await until(lambda: len(server.commands) > 10, "the menu")
        assert {"command", "description"} == set(server.commands[0])
        assert BOT["username"] == "tertulia_bot"
        server.write(42, "/whoami@tertulia_bot")
        (text,) = await sent(server, 1)
        assert "Ana Díaz" in text

    play(tmp_path, server, act)


def test_source_is_the_same_person_in_every_chat(tmp_path: Path, server: TelegramServer) -> None:
    async def act(store: aio.Store) -> None:
        server.write(42, "hola")
        server.write(-100, "@tertulia_bot hola", mentions=["@tertulia_bot"])
        await sent(server, 2)
        sessions: list[Any] = list((await store.sessions.find()).items)
        assert {session.origin.user_id for session in sessions} == {"42"}
        keys = {session.key for session in sessions}
        assert keys == {
            f"agent:main:telegram:dm:{Source('telegram', '42').chat_id}",
            "agent:main:telegram:group:-100:42",
        }

    play(tmp_path, server, act)
