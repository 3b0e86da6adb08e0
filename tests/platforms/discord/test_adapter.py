"""The Discord adapter against a server on loopback: every promise, and what happened to others."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from tertulia.core.backoff import Backoff
from tertulia.core.buttons import Button
from tertulia.core.media import Media
from tertulia.core.source import Source
from tertulia.errors import (
    AccountProblem,
    Error,
    OutcomeUnknown,
    PlatformError,
    PlatformUnavailable,
    RateLimited,
    Refused,
    StoreUnavailable,
    TooLarge,
)
from tertulia.platforms.base import (
    Changed,
    Incoming,
    MenuEntry,
    Outgoing,
    Pressed,
    Receive,
    StreamUpdate,
    Update,
)
from tertulia.platforms.discord import event_listener, socket_session
from tertulia.platforms.discord.adapter import DRAFT_END, DiscordAdapter
from tertulia.platforms.discord.cursor_position import Position
from tertulia.testing.adapter_contract import AdapterContract, AdapterFixture, SendFailure
from tests.servers.discord import (
    ANA,
    BOT,
    DM,
    GENERAL,
    GUILD,
    POST,
    ROLE,
    THREAD,
    TOKEN,
    DiscordServer,
    Refusal,
    rate_limit,
    refusal,
)
from tests.servers.scripted_http import Fault

CHAT = Source("discord", DM, user_id="42")


@pytest.fixture
def server() -> Iterator[DiscordServer]:
    with DiscordServer() as running:
        yield running
    assert running.violations == []
    assert running.pings == []
    assert not {1000, 1001} & set(running.closes)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses double as they do in production, from a shorter first one."""
    monkeypatch.setattr(event_listener, "_RECONNECT", Backoff(first=0.02, longest=0.2))
    monkeypatch.setattr(event_listener, "_STORE", Backoff(first=0.02, longest=0.2))


class WatchedAdapter(DiscordAdapter):
    """After a message that could not be stored, it waits until a heartbeat has said so."""

    def __init__(self, server: DiscordServer) -> None:
        super().__init__(TOKEN, base_url=server.base_url)
        self._server = server
        self.rejections = 0

    async def listen(self, receive: Receive) -> None:
        async def watched(update: Update) -> None:
            try:
                await receive(update)
            except Error:
                beats = len(self._server.heartbeats)
                await asyncio.to_thread(
                    self._server.wait, lambda: len(self._server.heartbeats) > beats + 1
                )
                self.rejections += 1
                self._server.notify()
                raise

        await super().listen(watched)


class DiscordScene(AdapterFixture):
    chat = DM
    mishaps = ("unavailable", "rate_limited", "refused", "too_large", "unknown")

    def __init__(self, server: DiscordServer) -> None:
        self.server = server
        self.adapter = WatchedAdapter(server)
        self._events: dict[str, int] = {}
        self._messages: dict[str, dict[str, Any]] = {}
        self._spoiled = 0
        # Shorter, and a busy machine takes an acknowledgement that is late for a lost one.
        server.heartbeat_millis = 500

    async def write(self, text: str, message_id: str) -> bool:
        """Write a message; a heartbeat tells the number of the last event that is stored."""
        await asyncio.to_thread(self.server.wait_connected)
        assert isinstance(self.adapter, WatchedAdapter)
        watched, rejections = self.adapter, self.adapter.rejections
        if message_id not in self._events:
            with self.server.lock:
                self._messages[message_id] = self.server.write(DM, text)
                self._events[message_id] = self.server.seq
        seq = self._events[message_id]
        await asyncio.to_thread(
            self.server.wait,
            lambda: self.server.is_stored(seq) or watched.rejections > rejections,
        )
        # It may be stored by now: it is handed over again by itself.
        return watched.rejections == rejections

    async def arrived(self, count: int) -> list[str]:
        await asyncio.to_thread(self.server.wait_sent, count)
        return self.server.texts

    def spoil(self, mishap: SendFailure) -> None:
        self._spoiled = self.server.count("create")
        faults = {
            "rate_limited": rate_limit(7, times=None),
            "refused": refusal(403, 50013, "Missing Permissions", times=None),
            "too_large": refusal(413, 40005, "Request entity too large", times=None),
            "unknown": Fault(takes=True, end="cut", times=None),
        }
        if mishap == "unavailable":
            self.server.refuse()
        else:
            self.server.spoil("create", faults[mishap])

    def tries(self) -> int:
        return self.server.count("create") - self._spoiled

    secrets = (TOKEN,)

    def another_adapter(self) -> WatchedAdapter:
        return WatchedAdapter(self.server)

    async def revoke(self) -> None:
        self.server.revoke()

    async def disconnect(self) -> None:
        self.server.refuse()

    async def reconnect(self) -> None:
        self.server.open()

    async def edit(self, message_id: str, text: str) -> None:
        self.server.edit(self._messages[message_id], text)

    async def attach(self, content: bytes) -> None:
        self.server.write(DM, attachments=[self.server.attach(content)])

    async def write_as_agent(self, text: str) -> None:
        self.server.write(DM, text, user=BOT)

    async def write_as_program(self, text: str) -> None:
        self.server.write(DM, text, user={"id": "8", "username": "robot", "bot": True})

    async def write_nonsense(self) -> None:
        self.server.dispatch("MESSAGE_CREATE", {"content": "of nobody"})

    async def press(self, value: str) -> bool:
        interaction = self.server.press(self.server.sent[-1].message_id, value)
        state = self.server.interactions[interaction["token"]]
        await asyncio.to_thread(self.server.wait, lambda: state["state"] == "acknowledged")
        return True

    def buttons(self) -> list[Button]:
        if not self.server.sent:
            return []
        message_id = self.server.sent[-1].message_id
        return [Button(*button) for button in self.server.buttons(message_id)]


class TestDiscordAdapter(AdapterContract):
    def play(
        self,
        act: Callable[[AdapterFixture], Awaitable[None]],
        receive: Callable[[Incoming], Awaitable[None]] | None = None,
        updates: list[Update] | None = None,
        press: Callable[[Pressed], Awaitable[None]] | None = None,
    ) -> None:
        """Begin when the adapter is connected.

        A connection that is cancelled while it is made is closed only by the garbage collector,
        with a warning.
        """

        async def connected(scene: AdapterFixture) -> None:
            assert isinstance(scene, DiscordScene)
            await asyncio.to_thread(scene.server.wait_connected)
            await act(scene)

        super().play(connected, receive, updates, press)

    @asynccontextmanager
    async def scene(self) -> AsyncIterator[AdapterFixture]:
        with DiscordServer() as server:
            yield DiscordScene(server)
            assert server.violations == []


class Listener:
    """An adapter that listens, and what it handed over."""

    def __init__(self, server: DiscordServer, **options: Any) -> None:
        self.server = server
        self.adapter = DiscordAdapter(TOKEN, base_url=server.base_url, **options)
        self.adapter._command_names = frozenset({"new", "status"})
        self.updates: list[Update] = []
        self.failures: list[Exception] = []
        self.listening: asyncio.Task[None] | None = None

    async def receive(self, update: Update) -> None:
        if isinstance(update, Incoming) and self.failures:
            raise self.failures.pop()
        self.updates.append(update)
        self.server.notify()

    @property
    def messages(self) -> list[Incoming]:
        return [update for update in self.updates if isinstance(update, Incoming)]

    @property
    def texts(self) -> list[str | None]:
        return [message.text for message in self.messages]

    @property
    def position(self) -> Position:
        cursors = [update.cursor for update in self.updates if update.cursor]
        return Position.read(cursors[-1])

    async def wait(self, condition: Callable[[], bool]) -> None:
        await asyncio.to_thread(self.server.wait, condition)

    async def wait_texts(self, *texts: str) -> None:
        await self.wait(lambda: len(self.messages) >= len(texts))
        assert self.texts == list(texts)

    async def wait_state(self, *, listening: bool) -> None:
        while self.adapter.state.listening is not listening:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    def start(self) -> None:
        self.listening = asyncio.create_task(self.adapter.listen(self.receive))

    async def stop(self) -> None:
        assert self.listening is not None
        self.listening.cancel()
        await asyncio.gather(self.listening, return_exceptions=True)


def play(
    server: DiscordServer,
    act: Callable[[Listener], Awaitable[None]],
    *,
    cursor: str | None = None,
    **options: Any,
) -> Listener:
    """Run `act` while an adapter listens."""
    listener = Listener(server, **options)
    listener.adapter.cursor = cursor

    async def run() -> None:
        async with asyncio.timeout(60):
            listener.start()
            try:
                await asyncio.to_thread(
                    server.wait, lambda: listener.adapter.state.heard_at is not None
                )
                await listener.wait_state(listening=True)
                await act(listener)
            finally:
                await listener.stop()
                await listener.adapter.close()

    asyncio.run(run())
    return listener


def call(server: DiscordServer, act: Callable[[DiscordAdapter], Awaitable[Any]]) -> Any:
    """Run `act` with an adapter that does not listen."""

    async def run() -> Any:
        adapter = DiscordAdapter(TOKEN, base_url=server.base_url)
        try:
            async with asyncio.timeout(60):
                return await act(adapter)
        finally:
            await adapter.close()

    return asyncio.run(run())


def outgoing(text: str = "hola", **fields: Any) -> Outgoing:
    return Outgoing(**{"delivery": "d1", "chat_id": DM, "text": text, **fields})


# -- the connection


def end_by_op_7(server: DiscordServer) -> None:
    server.order(7)


def end_by_op_9_with_session(server: DiscordServer) -> None:
    server.order(9, True)


def end_by_op_9(server: DiscordServer) -> None:
    server.expire_sessions()
    server.order(9, False)


def end_by_cut(server: DiscordServer) -> None:
    server.cut()


def end_by_move(server: DiscordServer) -> None:
    server.expire_sessions()  # the address for a resume is that of the old port
    server.move_gateway()


@pytest.mark.check
@pytest.mark.parametrize(
    "end",
    [
        end_by_op_7,
        end_by_op_9_with_session,
        end_by_op_9,
        end_by_cut,
        *[lambda server, code=code: server.close(code) for code in (1000, 1001, 1006, 4000, 4008)],
        *[lambda server, code=code: server.close(code) for code in (4007, 4009)],
    ],
)
def test_no_end_of_a_connection_loses_a_message(
    server: DiscordServer, end: Callable[[DiscordServer], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tertulia.core.backoff.JITTER.random", lambda: 0.0)
    monkeypatch.setattr(socket_session, "_INVALID_SECONDS", (0.05, 0.1))

    async def act(listener: Listener) -> None:
        server.write(DM, "before")
        await listener.wait_texts("before")
        end(server)
        server.write(DM, "meanwhile")
        await listener.wait(lambda: "meanwhile" in listener.texts)
        await listener.wait_state(listening=True)
        server.write(DM, "after")
        await listener.wait(lambda: "after" in listener.texts)

    listener = play(server, act)
    assert list(dict.fromkeys(listener.texts)) == ["before", "meanwhile", "after"]


@pytest.mark.check
def test_gateway_that_moved_is_asked_for_again(
    server: DiscordServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address of a resume is dead: after some attempts a new session is begun."""

    async def act(listener: Listener) -> None:
        server.write(DM, "before")
        await listener.wait_texts("before")
        server.move_gateway()
        server.write(DM, "meanwhile")
        await listener.wait(lambda: "meanwhile" in listener.texts)

    play(server, act)
    assert server.identifies == 2


@pytest.mark.check
def test_silent_connection_is_dropped_and_resumed(server: DiscordServer) -> None:
    """Deaf for hours while the status said connected: heartbeats must be acknowledged."""
    server.heartbeat_millis = 500

    async def act(listener: Listener) -> None:
        server.write(DM, "before")
        await listener.wait_texts("before")
        server.is_silent = True
        server.write(DM, "meanwhile")
        await listener.wait_state(listening=False)
        assert listener.adapter.state.problem
        server.heartbeat_millis = 41_250
        server.is_silent = False
        await listener.wait_texts("before", "meanwhile")

    play(server, act)
    assert server.identifies == 1


@pytest.mark.check
def test_slow_store_keeps_the_connection(server: DiscordServer) -> None:
    """While an event is being stored, heartbeats go on and no acknowledgement is missed."""
    server.heartbeat_millis = 1500

    async def act(listener: Listener) -> None:
        release = asyncio.Event()
        receive = listener.receive

        async def slow(update: Update) -> None:
            if isinstance(update, Incoming):
                await release.wait()
            await receive(update)

        await listener.stop()
        listener.receive = slow  # type: ignore[method-assign]
        listener.start()
        await listener.wait_state(listening=True)
        server.write(DM, "slow")
        seq, beats = server.seq, len(server.heartbeats)
        await listener.wait(lambda: len(server.heartbeats) > beats + 2)
        assert all((beat or 0) < seq for beat in server.heartbeats)
        release.set()
        await listener.wait_texts("slow")
        await listener.wait(lambda: (server.heartbeats[-1] or 0) >= seq)
        connected = len(server.resumes) + server.identifies
        await listener.wait(lambda: len(server.heartbeats) > beats + 4)
        assert len(server.resumes) + server.identifies == connected

    play(server, act)


def test_message_that_cannot_be_stored_is_handed_over_again(server: DiscordServer) -> None:
    async def act(listener: Listener) -> None:
        listener.failures = [StoreUnavailable("locked", hint="wait") for _ in range(3)]
        for number in range(5):
            server.write(DM, f"m{number}")
        await listener.wait_texts(*(f"m{number}" for number in range(5)))

    play(server, act)
    assert (server.identifies, server.resumes) == (1, [])


def test_new_process_resumes_from_what_was_stored(server: DiscordServer) -> None:
    async def act(listener: Listener) -> None:
        server.write(DM, "stored")
        await listener.wait_texts("stored")
        listener.failures = [StoreUnavailable("locked", hint="wait") for _ in range(10_000)]
        server.write(DM, "not stored")
        await listener.wait(lambda: len(listener.failures) < 10_000)

    first = play(server, act)
    server.write(DM, "meanwhile")

    async def again(listener: Listener) -> None:
        await listener.wait_texts("not stored", "meanwhile")

    play(server, again, cursor=first.position.cursor)
    assert server.identifies == 1
    assert server.resumes == [first.position.seq]


def test_first_private_message_is_not_lost_with_the_session(server: DiscordServer) -> None:
    """Discord lists no private chats: one that was never seen before could not be read again."""

    async def act(listener: Listener) -> None:
        listener.failures = [StoreUnavailable("locked", hint="wait") for _ in range(10_000)]
        server.write(DM, "first")
        await listener.wait(lambda: len(listener.failures) < 10_000)

    first = play(server, act)
    server.expire_sessions()

    async def again(listener: Listener) -> None:
        await listener.wait_texts("first")

    play(server, again, cursor=first.position.cursor)
    assert server.identifies == 2


def test_cursor_of_a_foreign_form_begins_anew(server: DiscordServer) -> None:
    server.write(DM, "before the first start")

    async def act(listener: Listener) -> None:
        server.write(DM, "hola")
        await listener.wait_texts("hola")

    play(server, act, cursor='{"latest": "x"')
    assert server.identifies == 1


@pytest.mark.check
@pytest.mark.parametrize("code", [4004, 4010, 4011, 4012, 4013, 4014])
def test_final_code_is_the_accounts_problem(server: DiscordServer, code: int) -> None:
    async def act(listener: Listener) -> None:
        server.close(code)
        assert listener.listening is not None
        with pytest.raises(AccountProblem) as problem:
            await listener.listening
        assert problem.value.hint
        assert not listener.adapter.state.listening

    play(server, act)


def test_missing_intent_is_explained(server: DiscordServer) -> None:
    server.flags = 0

    async def act(adapter: DiscordAdapter) -> None:
        async def receive(update: Update) -> None:
            raise AssertionError(update)

        with pytest.raises(AccountProblem) as problem:
            await adapter.listen(receive)
        assert "Message Content Intent" in str(problem.value)
        with pytest.raises(AccountProblem, match="message_content = false"):
            await adapter.identify()

    call(server, act)


def test_without_the_intent_mentions_and_private_messages_arrive(server: DiscordServer) -> None:
    server.flags = 0

    async def act(listener: Listener) -> None:
        server.write(GENERAL, "to others")
        server.write(GENERAL, "<@900> hola", mentions_bot=True)
        server.write(DM, "private")
        await listener.wait_texts("<@900> hola", "private")

    play(server, act, reads_all=False)


def test_used_up_sessions_are_waited_for(server: DiscordServer) -> None:
    """One session more than allowed, and Discord resets the token."""
    server.session_starts_left = 0
    listener = Listener(server)

    async def run() -> None:
        listener.start()
        try:
            async with asyncio.timeout(60):
                # It has asked again, so it has decided once, and more, not to begin a session.
                await listener.wait(lambda: server.count("gateway/bot") >= 2)
                assert server.identifies == 0
                server.session_starts_left = 5
                await listener.wait(lambda: server.identifies == 1)
        finally:
            await listener.stop()
            await listener.adapter.close()

    asyncio.run(run())


def test_refused_handshake_is_tried_again(server: DiscordServer) -> None:
    async def act(listener: Listener) -> None:
        server.refuses_handshake = 502
        server.cut()
        await listener.wait_state(listening=False)
        server.refuses_handshake = None
        server.write(DM, "hola")
        await listener.wait_texts("hola")

    play(server, act)


def test_server_that_cannot_be_reached_is_reached_later(server: DiscordServer) -> None:
    async def act(listener: Listener) -> None:
        server.refuse()
        await listener.wait_state(listening=False)
        assert listener.adapter.state.problem
        server.write(DM, "meanwhile")
        server.open()
        await listener.wait_texts("meanwhile")

    play(server, act)


@pytest.mark.check
@pytest.mark.parametrize("operation", ["users/@me/guilds", "guilds/100/channels", "history"])
@pytest.mark.parametrize(
    "fault",
    [
        Fault(502, b"<html>"), Fault(404, b"<html>"), Fault(200, b"{"), Fault(200, b"5"),
        Fault(end="cut"), rate_limit(0.05),
    ],
)  # fmt: skip
def test_no_fault_while_catching_up_loses_a_message(
    server: DiscordServer, operation: str, fault: Fault
) -> None:
    async def act(listener: Listener) -> None:
        server.write(DM, "before")
        await listener.wait_texts("before")

    first = play(server, act)
    server.expire_sessions()
    server.spoil(operation, fault, fault)
    server.write(DM, "meanwhile")
    server.write(THREAD, "in the thread")

    async def again(listener: Listener) -> None:
        await listener.wait(lambda: {"meanwhile", "in the thread"} <= set(listener.texts))

    play(server, again, cursor=first.position.cursor)


@pytest.mark.parametrize(
    "fault",
    [
        Fault(404, b"404: Not Found", times=None),
        refusal(404, 0, times=None),
        Fault(200, b"{}", times=None),
    ],
)
def test_server_that_has_only_messages_is_enough(
    server: DiscordServer, fault: Fault, caplog: pytest.LogCaptureFixture
) -> None:
    """Who proxies the API may serve only a part of it; names and menus are not needed."""
    for path in ("applications/@me", "gateway/bot", "commands", f"channels/{GENERAL}"):
        server.spoil(path, fault)
    for path in ("users/@me/guilds", "history"):
        server.spoil(path, fault)

    async def act(listener: Listener) -> None:
        await listener.adapter.fill_menu((MenuEntry("new", "Start afresh"),))
        server.write(DM, "hola")
        await listener.wait_texts("hola")

    first = play(server, act, gateway_url=server.gateway_url)
    server.expire_sessions()

    async def again(listener: Listener) -> None:
        server.dispatch("CHANNEL_UPDATE", {"id": GENERAL})  # it has to be asked for anew
        server.write(GENERAL, "again")
        await listener.wait_texts("again")

    play(server, again, cursor=first.position.cursor, gateway_url=server.gateway_url)
    assert server.count("users/@me/guilds") <= 4
    assert "the list of servers could not be read" in caplog.text


@pytest.mark.check
def test_wrong_items_while_catching_up_are_skipped(server: DiscordServer) -> None:
    """A message with a wrong id, or one of the far future, must not hide those after it."""

    async def act(listener: Listener) -> None:
        server.write(DM, "before")
        await listener.wait_texts("before")
        server.dispatch("MESSAGE_CREATE", {**server.message(DM, "x"), "id": str(2**64 - 1)})
        server.dispatch("MESSAGE_CREATE", {**server.message(DM, "y"), "channel_id": "\ud800"})
        server.write(DM, "last")
        await listener.wait(lambda: "last" in listener.texts)

    first = play(server, act)
    server.expire_sessions()
    server.channels["z"] = {"id": "z", "type": 0, "last_message_id": "z", "guild_id": GUILD}
    message = server.write(DM, "meanwhile")
    page: list[Any] = [5, None, {}, {"id": []}, {"id": "9" * 30}, {**message, "id": "z"}, message]
    server.spoil("history", Fault(200, json.dumps(page).encode()))

    async def again(listener: Listener) -> None:
        await listener.wait(lambda: "meanwhile" in listener.texts)
        await listener.wait_state(listening=True)

    play(server, again, cursor=first.position.cursor)


def test_bug_of_the_receiver_does_not_lose_a_message(server: DiscordServer) -> None:
    """It was skipped as a message that is not understood."""

    async def act(listener: Listener) -> None:
        listener.failures = [KeyError("a bug")]
        server.write(DM, "hola")
        assert listener.listening is not None
        with pytest.raises(RuntimeError):
            await listener.listening
        listener.adapter.cursor = listener.position.cursor
        listener.start()
        await listener.wait_texts("hola")

    play(server, act)


@pytest.mark.check
def test_channel_without_permission_does_not_stop_catching_up(
    server: DiscordServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def act(listener: Listener) -> None:
        server.write(DM, "before")
        await listener.wait_texts("before")

    first = play(server, act)
    server.expire_sessions()
    for number in range(250):
        server.write(POST, f"m{number}")
    server.write(GENERAL, "hidden")
    server.refused[GENERAL] = Refusal(403, 50001, "Missing Access")

    async def again(listener: Listener) -> None:
        await listener.wait(lambda: "m249" in listener.texts)

    second = play(server, again, cursor=first.position.cursor)
    posts = [text for text in second.texts if (text or "").startswith("m")]
    assert posts == [f"m{number}" for number in range(250)]
    assert "is not read" not in caplog.text  # it is common, and nobody can do anything about it


# -- events


def test_events_that_are_not_understood_are_skipped(
    server: DiscordServer, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "a text that nobody may read in a log"
    good = {"id": "1", "channel_id": DM, "content": secret}
    bad: list[Any] = [
        None, 5, [secret], {}, {"content": secret}, good, {**good, "author": None},
        {**good, "author": {"id": 5}}, {**good, "author": ANA, "content": 7},
        {**good, "author": ANA, "id": "x"}, {**good, "author": ANA, "attachments": [{}]},
        {**good, "author": ANA, "mentions": 5, "guild_id": "100", "channel_id": GENERAL},
    ]  # fmt: skip

    async def act(listener: Listener) -> None:
        for data in bad:
            for name in ("MESSAGE_CREATE", "MESSAGE_UPDATE", "MESSAGE_DELETE",
                         "INTERACTION_CREATE", "CHANNEL_UPDATE", "GUILD_CREATE"):  # fmt: skip
                server.dispatch(name, data)
        server.dispatch("AN_EVENT_OF_NEXT_YEAR", {"text": secret})
        server.dispatch_raw(b"not json " + secret.encode())
        server.dispatch_raw(b"[]")
        server.dispatch_raw(b'{"op": 0, "t": null, "s": null, "d": null}')
        server.dispatch_raw(b'{"op": 99, "d": "x"}')
        server.dispatch_raw(b'{"op": "x"}')
        server.write(DM, "\ud83d lone")
        server.write(DM, "after all of them")
        await listener.wait(lambda: "after all of them" in listener.texts)

    listener = play(server, act)
    assert "\ud83d lone" in listener.texts
    assert (server.identifies, server.resumes) == (1, [])
    assert "not understood" in caplog.text
    assert secret not in caplog.text


@pytest.mark.check
def test_huge_message_is_received(server: DiscordServer) -> None:
    text = "x" * (15 * 2**20)

    async def act(listener: Listener) -> None:
        server.write(DM, text)
        server.write(DM, "after")
        await listener.wait_texts(text, "after")

    play(server, act)


@pytest.mark.check
def test_frame_above_the_limit_does_not_stop_the_queue(server: DiscordServer) -> None:
    """It would come again with each resume: a new session reads the channels instead."""

    async def act(listener: Listener) -> None:
        server.write(DM, "before")
        await listener.wait_texts("before")
        server.dispatch("HUGE", "x" * (17 * 2**20))
        server.write(DM, "after")
        await listener.wait(lambda: "after" in listener.texts)

    play(server, act)
    assert server.identifies == 2


def test_source_and_address_of_messages(server: DiscordServer) -> None:
    async def act(listener: Listener) -> None:
        own = server.write(GENERAL, "of the bot", user=BOT)
        server.write(GENERAL, "to nobody")
        server.write(GENERAL, "<@900> hola", mentions_bot=True)
        server.write(GENERAL, f"<@&{ROLE}> hola", mention_roles=[ROLE])
        server.write(GENERAL, "<@&1> hola", mention_roles=["1"])
        server.write(GENERAL, "a reply", reply_to=own["id"])
        server.write(THREAD, "in a thread")
        server.write(POST, "in a post")
        server.write(DM, "private")
        server.write(GENERAL, "Ana has joined", type=7)
        server.write(DM, "last")
        await listener.wait(lambda: "last" in listener.texts)

    messages = play(server, act).messages
    assert [(message.text, message.is_addressed) for message in messages] == [
        ("to nobody", False),
        ("<@900> hola", True),
        (f"<@&{ROLE}> hola", True),
        ("<@&1> hola", False),
        ("a reply", True),
        ("in a thread", False),
        ("in a post", False),
        ("private", True),
        ("last", True),
    ]
    sources = [message.source for message in messages]
    assert (sources[0].chat_type, sources[0].chat_name) == ("group", "general")
    assert (sources[5].chat_id, sources[5].thread_id, sources[5].chat_name) == (
        GENERAL, THREAD, "general",
    )  # fmt: skip
    assert (sources[6].chat_id, sources[6].thread_id) == ("1001", POST)
    assert (sources[7].chat_type, sources[7].chat_id, sources[7].user_name) == (
        "dm", DM, "Ana Díaz",
    )  # fmt: skip
    assert {source.user_id for source in sources} == {"42"}
    assert messages[4].reply_to is not None


def test_new_process_knows_threads_without_their_announcement(server: DiscordServer) -> None:
    """A resumed session does not list the channels again; a thread must not become a channel."""

    async def act(listener: Listener) -> None:
        server.write(DM, "hola")
        await listener.wait_texts("hola")

    first = play(server, act)
    server.write(THREAD, "in a thread")

    async def again(listener: Listener) -> None:
        await listener.wait_texts("in a thread")

    server.spoil("channels/2000", Fault(500), rate_limit(0.05))
    second = play(server, again, cursor=first.position.cursor)
    assert second.messages[0].source.thread_id == THREAD


def test_edits_deletions_and_previews(server: DiscordServer) -> None:
    async def act(listener: Listener) -> None:
        message = server.write(DM, "before")
        server.dispatch("MESSAGE_UPDATE", {**message, "embeds": [{"url": "https://x.y"}]})
        server.edit(message, "after")
        server.delete(message)
        server.delete({"id": "77", "channel_id": DM})
        server.write(DM, "last")
        await listener.wait(lambda: "last" in listener.texts)

    listener = play(server, act)
    changes = [update for update in listener.updates if isinstance(update, Changed)]
    assert [(change.kind, change.text) for change in changes] == [
        ("edited", "after"),
        ("deleted", None),
    ]
    assert {change.message_id for change in changes} == {listener.messages[0].message_id}
    assert changes[1].source == listener.messages[0].source


@pytest.mark.check
@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("!new", "/new"),
        ("<@900> /new", "/new"),
        ("<@!900> !new title", "/new title"),
        ("/new", "/new"),
        ("!unknown", "!unknown"),
        ("<@900> hola", "<@900> hola"),
    ],
)
def test_commands_are_read_after_a_mention_and_with_a_mark(
    server: DiscordServer, text: str, read: str
) -> None:
    async def act(listener: Listener) -> None:
        server.write(DM, text)
        await listener.wait_texts(read)

    play(server, act)


def test_forwarded_message_and_sticker_are_text(server: DiscordServer) -> None:
    async def act(listener: Listener) -> None:
        snapshot = {"message": {"content": "forwarded", "attachments": [server.attach(b"x")]}}
        server.write(DM, message_snapshots=[snapshot])
        server.write(DM, sticker_items=[{"id": "1", "name": "Wave"}])
        await listener.wait_texts("forwarded", "(sticker: Wave)")
        assert len(listener.messages[0].media) == 1

    play(server, act)


# -- sending


@pytest.mark.check
@pytest.mark.parametrize(
    ("fault", "error"),
    [
        *[(refusal(403, code), Refused) for code in (50001, 50013, 50007, 50278, 50083)],
        (refusal(404, 10003), Refused),
        (refusal(413, 40005), TooLarge),
        (Fault(413, b"<html>"), TooLarge),
        (refusal(401, 0, "401: Unauthorized"), AccountProblem),
        (rate_limit(240), RateLimited),
        (Fault(429, b"<html>slow down", headers={"Retry-After": "240"}), RateLimited),
        (Fault(429, b""), RateLimited),
        (refusal(500, 0), OutcomeUnknown),
        (Fault(502, b"<html>"), OutcomeUnknown),
        (Fault(504, b""), OutcomeUnknown),
        (Fault(200, b"<html>"), OutcomeUnknown),
        (Fault(200, b""), OutcomeUnknown),
        (Fault(200, b"[]"), OutcomeUnknown),
        (Fault(403, b"<html>company proxy</html>"), PlatformUnavailable),
        (Fault(302, b""), PlatformUnavailable),
        (Fault(end="cut"), OutcomeUnknown),
        (Fault(takes=True, end="cut"), OutcomeUnknown),
        (Fault(takes=True, end="half"), OutcomeUnknown),
        (Fault(takes=True, status=500), OutcomeUnknown),
    ],
)
def test_every_refusal_has_its_meaning_and_is_not_repeated(
    server: DiscordServer, fault: Fault, error: type[PlatformError]
) -> None:
    server.spoil("create", fault)
    with pytest.raises(PlatformError) as caught:
        call(server, lambda adapter: adapter.send(outgoing()))
    assert type(caught.value) is error
    assert caught.value.hint
    assert TOKEN not in repr(caught.value) + str(caught.value)
    assert server.count("create") == 1
    if b"240" in fault.body or "Retry-After" in fault.headers:
        assert isinstance(caught.value, RateLimited)
        assert caught.value.retry_after == 240


def test_text_that_is_too_long_is_too_large(server: DiscordServer) -> None:
    with pytest.raises(TooLarge):
        call(server, lambda adapter: adapter.send(outgoing("x" * 2001)))


def test_unreachable_server_has_certainly_sent_nothing(server: DiscordServer) -> None:
    server.refuse()
    with pytest.raises(PlatformUnavailable):
        call(server, lambda adapter: adapter.send(outgoing()))


def test_repeated_delivery_arrives_once_also_as_a_file(server: DiscordServer) -> None:
    async def act(adapter: DiscordAdapter) -> None:
        media = Media(type="image/png", name="a b.png")
        ids = {
            await adapter.send(outgoing("see", media=media, content=b"\x89PNG")) for _ in range(2)
        }
        ids |= {await adapter.send(outgoing(delivery="d2")) for _ in range(2)}
        assert len(ids) == 2

    call(server, act)
    file, text = server.sent
    assert (file.content, file.file) == ("see", ("a b.png", b"\x89PNG"))
    assert text.content == "hola"


def test_nobody_is_notified_by_a_send_or_an_edit(server: DiscordServer) -> None:
    text = "@everyone @here <@42> <@&5000>"

    async def act(adapter: DiscordAdapter) -> None:
        number = await adapter.send(outgoing(text))
        await adapter.send(outgoing(f"{text} again", replaces=number, delivery="d2"))
        source = Source("discord", DM, user_id="42")
        draft = StreamUpdate(kind="draft", turn="t", text=text, message_id="7")
        await adapter.show(source, draft)

    call(server, act)
    assert server.pings == []
    assert len(server.sent) == 2


@pytest.mark.check
def test_reply_to_a_message_that_is_gone_is_sent_without_it(server: DiscordServer) -> None:
    question = server.write(DM, "hola")
    call(server, lambda adapter: adapter.send(outgoing(reply_to=question["id"])))
    call(server, lambda adapter: adapter.send(outgoing(reply_to="999", delivery="d2")))
    assert [message.reply_to for message in server.sent] == [question["id"], None]
    body = {"code": 50035, "message": "Invalid", "errors": {"message_reference": {}}}
    server.spoil("create", Fault(400, json.dumps(body).encode()))
    call(server, lambda adapter: adapter.send(outgoing(reply_to="999", delivery="d3")))
    server.spoil("create", refusal(400, 160002, times=None))
    with pytest.raises(Refused):
        call(server, lambda adapter: adapter.send(outgoing(reply_to="9", delivery="d4")))
    assert len(server.sent) == 3


def test_thread_is_kept_and_nothing_lands_elsewhere(server: DiscordServer) -> None:
    message = outgoing(chat_id=GENERAL, thread_id=THREAD)
    call(server, lambda adapter: adapter.send(message))
    assert [item.channel for item in server.sent] == [THREAD]
    for code in (10003, 50083):
        server.refused[THREAD] = Refusal(404 if code == 10003 else 400, code, "no")
        again = outgoing(chat_id=GENERAL, thread_id=THREAD, delivery=f"d{code}")
        with pytest.raises(Refused):
            call(server, partial(DiscordAdapter.send, message=again))
    assert len(server.sent) == 1


@pytest.mark.check
def test_person_is_written_to_in_their_private_chat_only(server: DiscordServer) -> None:
    """The id of a person where that of a channel is needed is refused, and not "sent"."""
    call(server, lambda adapter: adapter.send(outgoing(chat_id="@42")))
    assert [item.channel for item in server.sent] == [DM]
    with pytest.raises(Refused, match="put @ before"):
        call(server, lambda adapter: adapter.send(outgoing(chat_id="42", delivery="d2")))
    for chat_id in ("", "general", "@", None):
        wrong = outgoing(chat_id=chat_id, delivery="d3")
        with pytest.raises(Refused):
            call(server, partial(DiscordAdapter.send, message=wrong))
    assert len(server.sent) == 1


def test_message_is_replaced_or_sent_anew_if_it_is_gone(server: DiscordServer) -> None:
    number = call(server, lambda adapter: adapter.send(outgoing("first")))
    second = outgoing("second", replaces=number, delivery="d2")
    assert call(server, lambda adapter: adapter.send(second)) == number
    assert server.texts == ["second"]
    del server.messages[number]
    third = outgoing("third", replaces=number, delivery="d3")
    assert call(server, lambda adapter: adapter.send(third)) != number
    assert server.texts == ["third"]


def test_used_up_limit_is_kept_before_discord_refuses(server: DiscordServer) -> None:
    """Too many refused requests ban the address: a known limit is not run into."""
    server.limits = {
        "X-RateLimit-Bucket": "b", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset-After": "60",
    }  # fmt: skip

    async def act(adapter: DiscordAdapter) -> None:
        await adapter.send(outgoing())
        with pytest.raises(RateLimited) as problem:
            await adapter.send(outgoing(delivery="d2"))
        assert 50 < problem.value.retry_after <= 60
        server.limits = {}
        await adapter.send(outgoing(delivery="d3", chat_id=GENERAL))  # another channel

    call(server, act)
    assert server.count("create") == 2


def test_global_limit_stops_every_channel(server: DiscordServer) -> None:
    server.spoil("create", rate_limit(60, is_global=True))

    async def act(adapter: DiscordAdapter) -> None:
        for channel in (DM, GENERAL):
            with pytest.raises(RateLimited):
                await adapter.send(outgoing(chat_id=channel))

    call(server, act)
    assert server.count("create") == 1


# -- files


def read(server: DiscordServer, media: Media, limit: int = 2**30) -> bytes:
    async def act(adapter: DiscordAdapter) -> bytes:
        content = b""
        pieces = adapter.fetch(media)
        try:
            async for piece in pieces:
                content += piece
                if len(content) >= limit:
                    break
        finally:
            await pieces.aclose()
        return content

    result = call(server, act)
    assert isinstance(result, bytes)
    return result


def test_file_is_received_and_fetched_by_a_fresh_link(server: DiscordServer) -> None:
    async def act(listener: Listener) -> None:
        server.write(DM, attachments=[server.attach(b"content", filename="a.png")])
        await listener.wait(lambda: len(listener.messages) == 1)

    ((media,),) = [message.media for message in play(server, act).messages]
    assert (media.name, media.size) == ("a.png", 7)
    assert "hm=" not in (media.source or "")
    assert read(server, media) == b"content"
    server.is_expired = True
    with pytest.raises(Refused):
        read(server, media)
    server.is_expired = False
    server.spoil("file", Fault(end="half"), Fault(503, b""))
    for _ in range(2):
        with pytest.raises(PlatformUnavailable):
            read(server, media)
    server.messages.clear()
    for source in (media.source, "1/2", "x/y/z", f"{DM}/../1"):
        with pytest.raises(Refused):
            read(server, Media(source=source))


def test_file_without_end_can_be_left(server: DiscordServer) -> None:
    message = server.write(DM, attachments=[server.attach(None)])
    media = Media(source=f"{DM}/{message['id']}/{message['attachments'][0]['id']}")
    assert len(read(server, media, limit=500_000)) < 600_000


# -- show


def draft(text: str, **fields: Any) -> StreamUpdate:
    return StreamUpdate(kind="draft", turn="t1", text=text, message_id="7", **fields)


def test_draft_is_one_message_also_for_a_later_process(server: DiscordServer) -> None:
    question = server.write(DM, "hola")
    fields: dict[str, Any] = {"turn": "t1", "message_id": question["id"]}

    async def first(adapter: DiscordAdapter) -> str | None:
        await adapter.show(CHAT, StreamUpdate(kind="draft", text="a", **fields))
        return await adapter.show(CHAT, StreamUpdate(kind="draft", text="a b", **fields))

    async def later(adapter: DiscordAdapter) -> str | None:
        began = await adapter.show(CHAT, StreamUpdate(kind="began", is_retry=True, **fields))
        again = await adapter.show(CHAT, StreamUpdate(kind="draft", text="a b c", **fields))
        assert began == again
        return began

    number = call(server, first)
    server.nonces.clear()  # Discord remembers them for some minutes only
    assert call(server, later) == number
    assert [message["content"] for message in server.messages.values()][1:] == [f"a b c{DRAFT_END}"]


def test_draft_with_an_unknown_outcome_is_not_left_behind(server: DiscordServer) -> None:
    """A frozen half answer, and then the whole one: the lost draft is found by its nonce."""
    server.spoil("create", Fault(takes=True, end="cut"))

    async def act(adapter: DiscordAdapter) -> None:
        assert await adapter.show(CHAT, draft("half")) is None
        ended = StreamUpdate(kind="ended", turn="t1", message_id="7")
        assert await adapter.show(CHAT, ended) is None

    call(server, act)
    assert server.messages == {}


def test_long_draft_shows_what_its_message_will_have(server: DiscordServer) -> None:
    call(server, lambda adapter: adapter.show(CHAT, draft("word " * 2000 + "the end")))
    (message,) = server.sent
    assert len(message.content) <= 2000
    assert message.content.startswith("word")


def test_show_obeys_pauses_and_never_fails(server: DiscordServer) -> None:
    async def act(adapter: DiscordAdapter) -> None:
        for fault in (Fault(end="cut"), Fault(502, b"<html>"), Fault(200, b"{"), Fault(200, b"[]")):
            server.spoil("create", fault)
            server.spoil("typing", fault)
            await adapter.show(CHAT, draft("a"))
            await adapter.show(CHAT, StreamUpdate(kind="typing", turn="t1"))
            await asyncio.gather(*adapter._typing._by_turn.values())
        before = server.count("create")
        server.spoil("create", rate_limit(60))
        for text in ("b", "bc", "bcd"):
            await adapter.show(CHAT, draft(text))
        assert server.count("create") == before + 1

    call(server, act)


def test_typing_ends_with_its_turn(server: DiscordServer) -> None:
    async def act(adapter: DiscordAdapter) -> None:
        await adapter.show(CHAT, StreamUpdate(kind="began", turn="t1"))
        (task,) = adapter._typing._by_turn.values()
        await adapter.show(CHAT, StreamUpdate(kind="ended", turn="t1"))
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        thread = Source("discord", GENERAL, chat_type="group", thread_id=THREAD)
        await adapter.show(thread, StreamUpdate(kind="typing", turn="t2"))
        await asyncio.gather(*adapter._typing._by_turn.values())
        assert not adapter._typing._by_turn

    call(server, act)
    assert server.typing == [THREAD]


# -- commands and the rest


def test_menu_is_set_once_and_a_command_is_acknowledged_after_it_is_stored(
    server: DiscordServer,
) -> None:
    entries = (MenuEntry("new", "Begin"), MenuEntry("Bad Name", "x"), MenuEntry("help", "y" * 300))

    async def fill(adapter: DiscordAdapter) -> None:
        await adapter.fill_menu(entries)
        await adapter.fill_menu(entries)
        server.spoil("commands", rate_limit(60))
        await adapter.fill_menu(entries)

    call(server, fill)
    assert [command["name"] for command in server.commands] == ["new", "help"]
    assert sum(request.method == "PUT" for request in server.requests) == 1

    async def act(listener: Listener) -> None:
        listener.failures = [StoreUnavailable("locked", hint="wait")]
        interaction = server.choose("new", "a title", channel=THREAD)
        await listener.wait_texts("/new a title")
        assert listener.messages[0].message_id == interaction["id"]
        assert listener.messages[0].source.thread_id == THREAD
        await listener.wait(lambda: server.count("callback") == 1)
        number = await listener.adapter.send(outgoing(chat_id=GENERAL, thread_id=THREAD))
        assert server.messages[number or ""]["webhook_id"] == "901"
        second = outgoing("more", chat_id=GENERAL, thread_id=THREAD, delivery="d2")
        await listener.adapter.send(second)

    play(server, act)
    assert [(item.channel, item.content) for item in server.sent] == [
        (THREAD, "hola"),
        (THREAD, "more"),
    ]


@pytest.mark.parametrize("fault", [refusal(404, 10062), Fault(502, b""), Fault(end="cut")])
def test_command_that_cannot_be_acknowledged_is_answered_in_the_channel(
    server: DiscordServer, fault: Fault
) -> None:
    async def act(listener: Listener) -> None:
        server.spoil("callback", fault)
        server.choose("new")
        await listener.wait(lambda: len(listener.messages) == 1)
        await listener.adapter.send(outgoing("done"))

    play(server, act)
    assert server.texts == ["done"]


def test_answer_to_a_command_is_repeated_into_the_same_message(server: DiscordServer) -> None:
    async def act(listener: Listener) -> None:
        server.choose("new")
        await listener.wait(lambda: len(listener.messages) == 1)
        server.spoil("answer", Fault(takes=True, end="cut"))
        with pytest.raises(OutcomeUnknown):
            await listener.adapter.send(outgoing("done"))
        await listener.adapter.send(outgoing("done"))

    play(server, act)
    assert server.texts == ["done"]


def test_bot_says_who_it_is_and_how_to_add_it(server: DiscordServer) -> None:
    identity = call(server, lambda adapter: adapter.identify())
    assert identity.startswith("Tertulia")
    assert "client_id=901" in identity


@pytest.mark.check
def test_secrets_are_in_no_log_error_repr_or_cursor(
    server: DiscordServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secrets = (TOKEN, "interaction-secret", "signature-of-a-file")
    errors: list[BaseException] = []

    async def act(listener: Listener) -> None:
        server.choose("new")
        server.write(DM, attachments=[server.attach(b"x")])
        await listener.wait(lambda: len(listener.messages) == 2)
        await listener.adapter.send(outgoing())
        media = listener.messages[1].media[0]
        faults = [Fault(end="cut"), Fault(takes=True, end="half"), Fault(502, b"<html>"),
                  Fault(302, headers={"Location": "/elsewhere"})]  # fmt: skip
        for fault in faults:
            server.spoil("create", fault)
            server.spoil("file", fault)
            try:
                await listener.adapter.send(outgoing())
            except PlatformError as problem:
                errors.append(problem)
            try:
                async for _ in listener.adapter.fetch(media):
                    pass
            except PlatformError as problem:
                errors.append(problem)
        server.close(4000)
        await listener.wait_state(listening=False)

    listener = play(server, act)
    assert len(errors) == 8
    texts = [caplog.text, listener.position.cursor, repr(listener.adapter), *map(repr, errors)]
    texts += [repr(vars(error)) for error in errors] + [repr(listener.adapter._api)]
    for secret in secrets:
        assert not any(secret in text for text in texts), secret
    assert all(error.__cause__ is None for error in errors)


def test_message_that_was_being_stored_when_the_connection_died_comes_again(
    server: DiscordServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The position moves before a message is handed over, and back if that is cut off."""
    texts: list[str | None] = []

    async def run() -> None:
        is_cut_off = asyncio.Event()

        async def beat(session: Any, interval: float) -> None:
            """Find the connection dead while a message is being stored."""
            await is_cut_off.wait()
            if not server.resumes:
                raise socket_session.ConnectionEnded("A heartbeat could not be sent.")
            await asyncio.Event().wait()

        async def receive(update: Update) -> None:
            if isinstance(update, Incoming) and not is_cut_off.is_set():
                is_cut_off.set()
                await asyncio.Event().wait()
            if isinstance(update, Incoming):
                texts.append(update.text)
                server.notify()

        monkeypatch.setattr(socket_session.SocketSession, "beat", beat)
        adapter = DiscordAdapter(TOKEN, base_url=server.base_url)
        listening = asyncio.create_task(adapter.listen(receive))
        try:
            async with asyncio.timeout(20):
                await asyncio.to_thread(server.wait_connected)
                server.write(DM, "hola")
                await asyncio.to_thread(server.wait, lambda: bool(texts), 15)
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
            await adapter.close()

    asyncio.run(run())
    assert texts == ["hola"]
    assert server.resumes
    assert server.identifies == 1  # it came from the session, not from the chat
