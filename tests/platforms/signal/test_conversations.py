"""Whole conversations: a real gateway, the Signal adapter, and a daemon on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from tertulia import aio
from tertulia.agents.base import Agent, Event, Request, Step
from tertulia.core.backoff import Backoff
from tertulia.gateway import retries
from tertulia.gateway.app import Gateway
from tertulia.gateway.settings import GatewaySettings
from tertulia.platforms.signal import adapter as adapter_module
from tertulia.platforms.signal.adapter import SignalAdapter
from tertulia.records.queues import base as queues
from tests.gateway.running_gateway import FAST, OPEN, Echo, Scripted, until
from tests.servers.scripted_http import Fault
from tests.servers.signal import ANA_UUID, GROUP, NUMBER, OWN_UUID, SignalServer, error

# With a single try, a failure that uses one up makes a dead letter at once.
RULES = GatewaySettings(gather_seconds=0, sends=1, platforms={"signal": OPEN})
OWN = {"name": "Tertulia", "uuid": OWN_UUID, "start": 0, "length": 1}


@pytest.fixture
def server() -> Iterator[SignalServer]:
    with SignalServer() as running:
        yield running
    assert running.violations == []


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter_module, "_RECONNECT", Backoff(first=0.02, longest=0.2))
    monkeypatch.setattr(retries, "ACCOUNT_BACKOFF", Backoff(first=0.05, longest=0.2))
    monkeypatch.setattr(queues, "_POLL_SECONDS", 0.1)


@asynccontextmanager
async def running(
    folder: Path, agent: Agent, server: SignalServer, settings: GatewaySettings = RULES
) -> AsyncIterator[aio.Store]:
    adapter = SignalAdapter(NUMBER, base_url=server.url)
    listeners = len(server.listeners)
    async with aio.open(folder / "talk.db", settings=FAST) as store:
        gateway = Gateway(store, agent, [adapter], settings=settings)
        serving = asyncio.create_task(gateway.run())
        try:
            async with asyncio.timeout(60):
                await asyncio.to_thread(server.wait_listening, listeners + 1)
                yield store
        finally:
            gateway.stop()
            await serving


def play(
    folder: Path,
    server: SignalServer,
    act: Callable[[aio.Store], Awaitable[None]],
    agent: Agent | None = None,
) -> None:
    async def run() -> None:
        async with running(folder, agent or Echo(), server) as store:
            await act(store)

    asyncio.run(run())


async def sent(server: SignalServer, count: int) -> list[str]:
    await asyncio.to_thread(server.wait_sent, count)
    return server.texts


def test_private_and_group_messages_are_answered_in_their_chats(
    tmp_path: Path, server: SignalServer
) -> None:
    async def act(store: aio.Store) -> None:
        server.write("hola")
        server.write("to nobody", group=GROUP)
        server.write("\ufffc hola", group=GROUP, mentions=[OWN])
        await sent(server, 2)
        sessions = (await store.sessions.find()).items
        assert {session.origin.user_name for session in sessions} == {"Ana Díaz"}

    play(tmp_path, server, act)
    assert {(message.chat, message.text) for message in server.sent} == {
        (ANA_UUID, "re hola"),
        (GROUP, "re @Tertulia hola"),
    }
    quotes = {message.chat: message.quote for message in server.sent}
    assert quotes[GROUP] is not None
    assert quotes[ANA_UUID] is None


def test_formatted_long_answer_is_split(tmp_path: Path, server: SignalServer) -> None:
    answer = "# Title\n\n**bold** `x` [l](https://a.b)\n\n" + "palabra ñ " * 400 + "the end"

    async def script(request: Request) -> AsyncGenerator[Event, None]:
        yield Step(answer)

    async def act(store: aio.Store) -> None:
        server.write("hola")
        await until(lambda: "the end" in "".join(server.texts), "all parts")

    play(tmp_path, server, act, Scripted(script))
    assert len(server.sent) > 1
    assert server.sent[0].styles[:2] == ("0:5:BOLD", "7:4:BOLD")


def test_file_that_is_too_large_is_told_and_the_turn_goes_on(
    tmp_path: Path, server: SignalServer
) -> None:
    """A big file vanished silently."""
    agent = Echo()
    small = msgspec.structs.replace(OPEN, max_file_mb=0.2)
    settings = GatewaySettings(gather_seconds=0, platforms={"signal": small})

    async def run() -> None:
        async with running(tmp_path, agent, server, settings):
            server.write("see", attachments=[server.attach(None)])
            await sent(server, 2)

    asyncio.run(run())
    assert len(agent.asked) == 1
    assert any("larger than" in text for text in server.texts)


@pytest.mark.check
def test_two_gateways_on_one_account_answer_once(tmp_path: Path, server: SignalServer) -> None:
    """Each of them gets every message; the inbox knows it by its id."""

    async def run() -> None:
        async with (
            running(tmp_path, Echo(), server),
            running(tmp_path, Echo(), server) as store,
        ):
            for number in range(20):
                server.write(f"m{number}")
            server.write("/status")
            await until(lambda: len(server.sent) >= 21, "all answers")
            server.write("last")
            await until(lambda: "re last" in server.texts, "the last answer")
            server.write("very last")
            await until(lambda: "re very last" in server.texts, "what came twice is settled")
            assert not (await store.outbox.find(state="waiting")).items

    asyncio.run(run())
    assert len(server.sent) == 23
    assert len(set(server.texts)) == 23


@pytest.mark.check
def test_two_gateways_offer_one_code_to_a_stranger(tmp_path: Path, server: SignalServer) -> None:
    strict = GatewaySettings(gather_seconds=0)

    async def run() -> None:
        async with (
            running(tmp_path, Echo(), server, strict),
            running(tmp_path, Echo(), server, strict) as store,
        ):
            server.write("hola")
            (text,) = await sent(server, 1)
            code = text.splitlines()[0].rpartition(" ")[2]
            await store.people.approve(code)
            server.write("again")
            await until(lambda: "re again" in server.texts, "the answer")

    asyncio.run(run())
    # A gateway that is slow sees the first message after the approval, and may answer it.
    texts = [text for text in server.texts if text != "re hola"]
    assert len(texts) == 2
    assert server.texts.count("re hola") <= 1


@pytest.mark.check
def test_send_without_a_clear_answer_is_unknown_and_not_repeated(
    tmp_path: Path, server: SignalServer
) -> None:
    async def act(store: aio.Store) -> None:
        server.spoil("send", Fault(takes=True, end="cut"))
        server.write("hola")
        await sent(server, 1)
        server.write("and then")
        await sent(server, 2)
        (unknown,) = (await store.outbox.find(state="unknown")).items
        assert unknown.body["text"] == "re hola"

    play(tmp_path, server, act)
    assert server.texts == ["re hola", "re and then"]


@pytest.mark.check
def test_answer_survives_every_pause_that_signal_asks_for(
    tmp_path: Path, server: SignalServer
) -> None:
    async def act(store: aio.Store) -> None:
        pause = error(-5, "RATE_LIMIT_FAILURE", retryAfterSeconds=0.05)
        server.spoil("send", *[pause] * 9)
        server.write("hola")
        assert await sent(server, 1) == ["re hola"]

    play(tmp_path, server, act)


@pytest.mark.check
def test_captcha_pauses_the_account_and_makes_no_dead_letters(
    tmp_path: Path, server: SignalServer
) -> None:
    async def act(store: aio.Store) -> None:
        server.spoil("send", error(-5, "RATE_LIMIT_FAILURE", token="a-secret", times=None))
        server.write("hola")
        await asyncio.to_thread(server.wait, lambda: server.count("send") > 2)
        assert not (await store.outbox.find(state="dead")).items
        server.mend()
        assert await sent(server, 1) == ["re hola"]

    play(tmp_path, server, act)
