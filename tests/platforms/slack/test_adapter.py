"""The Slack adapter against a Slack on loopback: the contract, workspaces, the account, status."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import urllib.parse
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tertulia.core.buttons import Button
from tertulia.core.media import Media
from tertulia.core.source import Source
from tertulia.errors import (
    AccountProblem,
    PlatformError,
)
from tertulia.platforms import http_library
from tertulia.platforms.base import (
    Changed,
    MenuEntry,
    Pressed,
    StreamUpdate,
)
from tertulia.platforms.slack import adapter as adapter_module
from tertulia.platforms.slack.adapter import SlackAdapter
from tertulia.platforms.slack.event_reader import BotIdentity
from tertulia.testing.adapter_contract import AdapterContract, AdapterFixture, SendFailure
from tests.platforms.slack.slack_scene import (
    DM,
    Listener,
    call,
    outgoing,
    play,
    post,
    read_all,
)
from tests.servers.scripted_http import Fault
from tests.servers.slack import (
    APP_TOKEN,
    BOT,
    BOT_TOKEN,
    SIGNING_SECRET,
    SlackServer,
    rate_limit,
    refusal,
)


class SlackScene(AdapterFixture):
    chat = "D1"
    mishaps = ("unavailable", "rate_limited", "refused", "too_large", "unknown")

    def __init__(self, server: SlackServer, **options: Any) -> None:
        self.server = server
        self.adapter = SlackAdapter(BOT_TOKEN, base_url=f"{server.url}/api", **options)
        self._written: dict[str, dict[str, Any]] = {}
        self._spoiled = 0
        server.pauses = ()
        server.returns_own = False
        server.add_channel("D1")

    async def write(self, text: str, message_id: str) -> bool:
        if message_id not in self._written:
            self._written[message_id] = self.server.write("D1", text)
            event = self.server.events[-1]
        else:
            event = self.server.push(self._written[message_id])
        await asyncio.to_thread(self.server.wait_settled, event)
        return event.state == "acknowledged"

    async def arrived(self, count: int) -> list[str]:
        sent = await asyncio.to_thread(self.server.wait_sent, count)
        return [message.text for message in sent]

    def spoil(self, mishap: SendFailure) -> None:
        self._spoiled = self.server.count("chat.postMessage")
        faults = {
            "rate_limited": rate_limit(7, None),
            "refused": refusal("channel_not_found", times=None),
            "too_large": refusal("msg_too_long", times=None),
            "unknown": Fault(takes=True, end="cut", times=None),
        }
        if mishap == "unavailable":
            self.server.refuse()
        else:
            self.server.spoil("chat.postMessage", faults[mishap])

    def tries(self) -> int:
        return self.server.count("chat.postMessage") - self._spoiled

    secrets = (BOT_TOKEN, APP_TOKEN, SIGNING_SECRET)

    async def revoke(self) -> None:
        self.server.revoke()

    async def push(self, event: dict[str, Any]) -> None:
        """Let an event come in."""
        self.server.push(event)

    async def attach(self, content: bytes) -> None:
        file = self.server.add_file(content)
        await self.push({**self.server.message("D1", "UANA", "see"), "files": [file]})

    async def write_as_agent(self, text: str) -> None:
        await self.push(self.server.message("D1", BOT, text))

    async def write_as_program(self, text: str) -> None:
        await self.push({**self.server.message("D1", "UROBOT", text), "bot_id": "B9"})

    async def write_nonsense(self) -> None:
        await self.push({"type": "message", "text": ["nonsense"]})
        await self.push({"type": "of_next_year"})

    async def edit(self, message_id: str, text: str) -> None:
        before = self._written[message_id]
        await self.push({
            "type": "message", "subtype": "message_changed", "channel": "D1", "ts": "9.9",
            "message": {**before, "text": text}, "previous_message": before,
        })  # fmt: skip

    async def press(self, value: str) -> bool:
        event = self.server.press("D1", self.server.sent[-1].ts, value)
        await asyncio.to_thread(self.server.wait_settled, event)
        return event.state == "acknowledged"

    def buttons(self) -> list[Button]:
        if not self.server.sent:
            return []
        return [Button(*button) for button in self.server.buttons("D1", self.server.sent[-1].ts)]


class SocketScene(SlackScene):
    """Socket Mode: the adapter keeps a connection, which can be lost."""

    async def disconnect(self) -> None:
        self.server.refuse()

    async def reconnect(self) -> None:
        self.server.open()


class TestSocketMode(AdapterContract):
    @asynccontextmanager
    async def scene(self) -> AsyncIterator[AdapterFixture]:
        with SlackServer() as server:
            server.ack_seconds = 2.0
            yield SocketScene(server, app_token=APP_TOKEN)
            assert server.violations == []


class EventsScene(SlackScene):
    """The Events API: a request of Slack calls the adapter."""

    async def write(self, text: str, message_id: str) -> bool:
        if message_id not in self._written:
            self._written[message_id] = self.server.message("D1", "UANA", _escaped(text))
        while self.adapter.state.heard_at is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        payload = {"type": "event_callback", "team_id": "T1", "event": self._written[message_id]}
        return await post(self.server, self.adapter, payload) == 200

    async def push(self, event: dict[str, Any]) -> None:
        payload = {"type": "event_callback", "team_id": "T1", "event": event}
        assert await post(self.server, self.adapter, payload) == 200

    async def press(self, value: str) -> bool:
        payload = self.server.press_payload("D1", self.server.sent[-1].ts, value)
        body = urllib.parse.urlencode({"payload": json.dumps(payload)}).encode()
        form = {"content-type": "application/x-www-form-urlencoded"}
        return await post(self.server, self.adapter, body, **form) == 200


class TestEventsApi(AdapterContract):
    @asynccontextmanager
    async def scene(self) -> AsyncIterator[AdapterFixture]:
        with SlackServer() as server:
            yield EventsScene(server, signing_secret=SIGNING_SECRET)
            assert server.violations == []


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


# -- own messages and changes


def test_own_messages_and_edits_are_dropped(server: SlackServer) -> None:
    async def act(listener: Listener) -> None:
        server.write("D1", "first")
        ts = await listener.adapter.send(outgoing("an answer"))
        await listener.adapter.send(outgoing("a better one", replaces=ts))
        server.write("D1", "last")
        await listener.settled()

    listener = play(server, act)
    assert listener.texts == ["first", "last"]
    assert len(listener.updates) == 2
    assert [text for _, _, text in server.edits] == ["a better one"]


def test_edit_and_deletion_are_changes(server: SlackServer) -> None:
    async def act(listener: Listener) -> None:
        message = server.write("C1", "before", thread=None)
        server.edit(message, "after & more")
        server.edit(message, "before")  # a preview of a link: the text is the same
        server.delete(message)
        item = {"type": "message", "channel": "C1", "ts": message["ts"]}
        server.push({"type": "reaction_added", "user": "UANA", "reaction": "tada", "item": item})
        await listener.settled()

    listener = play(server, act)
    changes = [update for update in listener.updates if isinstance(update, Changed)]
    assert [(change.kind, change.text) for change in changes] == [
        ("edited", "after & more"),
        ("deleted", None),
        ("reacted", "tada"),
    ]
    assert {change.message_id for change in changes} == {listener.messages[0].message_id}
    assert {change.source.chat_id for change in changes} == {"C1"}


# -- several workspaces


def test_event_reaches_the_account_of_its_workspace(server: SlackServer) -> None:
    server.add_workspace("T2", "xoxb-2-fake")

    async def act(listener: Listener) -> None:
        other = Listener(server, token="xoxb-2-fake", account="second")
        other.start()
        try:
            await asyncio.to_thread(server.wait_sockets, 2)
            # In turn to both sockets: half of the events reach the one of the other workspace.
            for number in range(0, 6, 2):
                server.write("D1", f"first {number}")
                server.write("D2", f"second {number}", team="T2")
                server.write("D2", f"second {number + 1}", team="T2")
                server.write("D1", f"first {number + 1}")
            await listener.settled()
            assert sorted(map(str, other.texts)) == [f"second {number}" for number in range(6)]
            assert {message.source.account for message in other.messages} == {"second"}
        finally:
            await other.stop()
            await other.adapter.close()

    listener = play(server, act)
    assert sorted(map(str, listener.texts)) == [f"first {number}" for number in range(6)]


def test_press_reaches_the_account_of_its_workspace(server: SlackServer) -> None:
    """An approval that the account of another workspace took would be nobody's."""
    server.add_workspace("T2", "xoxb-2-fake")
    ts = server.message("D2", "UBOTT2", "May I?", team="T2")["ts"]

    async def act(listener: Listener) -> None:
        other = Listener(server, token="xoxb-2-fake", account="second")
        other.start()
        try:
            await asyncio.to_thread(server.wait_sockets, 2)
            for _ in range(4):
                server.press("D2", ts, "once:1", team="T2")
            await listener.settled()
        finally:
            await other.stop()
            await other.adapter.close()
        presses = [update for update in other.updates if isinstance(update, Pressed)]
        assert [press.source.account for press in presses] == ["second"] * 4

    assert play(server, act).updates == []


def test_event_is_not_handed_to_an_adapter_of_another_loop(
    server: SlackServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Another gateway of this process, in another thread: its adapter may not be called here."""
    server.add_workspace("T2", "xoxb-2-fake")
    handed: list[Any] = []

    class Elsewhere(SlackAdapter):
        async def hand_over(self, payload: Any, identity: BotIdentity) -> None:
            handed.append(payload)

    async def act(listener: Listener) -> None:
        await asyncio.to_thread(server.wait_sockets, 1)
        server.write("D2", "not here", team="T2")
        server.write("D1", "here")
        await listener.settled()

    other = Elsewhere("xoxb-2-fake", app_token=APP_TOKEN, base_url=f"{server.url}/api")
    other.identity = BotIdentity(user_id="UBOTT2", team_id="T2")
    other.loop = asyncio.new_event_loop()
    try:
        assert play(server, act).texts == ["here"]
    finally:
        other.loop.close()
        asyncio.run(other.close())
    assert handed == []
    assert "without an account" in caplog.text


def test_event_waits_for_an_account_that_is_not_connected_yet(server: SlackServer) -> None:
    server.add_workspace("T2", "xoxb-2-fake")
    server.ack_seconds = 1.0
    server.pauses = (0.05,) * 100

    async def act(listener: Listener) -> None:
        other = Listener(server, token="xoxb-2-fake", account="second")
        server.write("D2", "early", team="T2")
        await listener.wait(lambda: server.events[0].sends > 1)
        other.start()
        try:
            await listener.settled()
            assert other.texts == ["early"]
        finally:
            await other.stop()
            await other.adapter.close()

    play(server, act)


def test_event_of_a_workspace_without_an_account_is_skipped(
    server: SlackServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.add_workspace("T9", "xoxb-9")

    async def act(listener: Listener) -> None:
        server.write("D1", "stranger", team="T9")
        server.write("D1", "hola")
        await listener.settled()

    listener = play(server, act)
    assert listener.texts == ["hola"]
    assert "without an account" in caplog.text


# -- the account


@pytest.mark.parametrize(
    "error", ["invalid_auth", "token_revoked", "account_inactive", "missing_scope"]
)
@pytest.mark.parametrize("operation", ["auth.test", "apps.connections.open"])
def test_refused_token_is_the_trouble_of_the_account(
    server: SlackServer, error: str, operation: str
) -> None:
    server.spoil(operation, refusal(error))

    async def act(listener: Listener) -> None:
        assert listener.listening is not None
        with pytest.raises(AccountProblem, match=error):
            await listener.listening

    play(server, act)


@pytest.mark.parametrize("kind", ["tokens_revoked", "app_uninstalled"])
def test_revoked_token_is_noticed_at_once(server: SlackServer, kind: str) -> None:
    async def act(listener: Listener) -> None:
        await asyncio.to_thread(server.wait_sockets, 1)
        server.revoke()
        server.push({"type": kind, "tokens": {"bot": ["UBOT1"]}})
        assert listener.listening is not None
        with pytest.raises(AccountProblem):
            await listener.listening

    play(server, act)


def test_failed_check_of_the_account_keeps_the_connections(
    server: SlackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter_module, "_CHECK_SECONDS", 0.02)

    async def act(listener: Listener) -> None:
        await asyncio.to_thread(server.wait_sockets, 1)
        count = server.count("auth.test")
        server.spoil("auth.test", Fault(502, b"<html>", times=3))
        await listener.wait(lambda: server.count("auth.test") > count + 4)
        server.write("D1", "hola")  # a connection that is made anew takes it only when it is open
        await listener.wait_texts("hola")
        assert server.hellos == 1

    play(server, act)


def test_account_without_a_socket_that_cannot_be_asked_is_told(
    server: SlackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a connection the answers of Slack are all that the state can rest on."""
    monkeypatch.setattr(adapter_module, "_CHECK_SECONDS", 0.02)

    async def act(listener: Listener) -> None:
        await listener.wait_state(True)
        server.spoil("auth.test", Fault(502, b"<html>", times=None))
        await listener.wait_state(False)
        assert listener.adapter.state.problem
        server.mend()
        await listener.wait_state(True)
        assert listener.adapter.state.problem is None

    play(server, act, app_token=None, signing_secret=SIGNING_SECRET)


def test_answer_without_an_identity_does_not_end_listening(server: SlackServer) -> None:
    server.spoil("auth.test", Fault(200, b'{"ok":true}'))

    async def act(listener: Listener) -> None:
        server.write("D1", "hola")
        await listener.wait_texts("hola")

    play(server, act)


@pytest.mark.parametrize("operation", ["auth.test", "apps.connections.open"])
def test_pause_before_listening_is_kept(server: SlackServer, operation: str) -> None:
    """Asked again too soon, Slack asks for a longer one."""
    server.spoil(operation, rate_limit(1.5))
    began = time.monotonic()

    async def act(listener: Listener) -> None:
        await listener.wait_state(True)
        assert time.monotonic() - began >= 1.5

    play(server, act)


# -- show


def show(server: SlackServer, *updates: StreamUpdate, source: Source = DM) -> None:
    async def act(adapter: SlackAdapter) -> None:
        for update in updates:
            await adapter.show(source, update)
            await asyncio.gather(*adapter._statuses._by_turn.values())

    call(server, act)


def test_status_is_shown_in_the_thread_and_ends(
    server: SlackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter_module, "_STATUS_DELAY_SECONDS", 0.0)
    source = Source("slack", "C1", chat_type="channel", user_id="UANA", thread_id="5.5")
    began = StreamUpdate(kind="began", turn="1", message_id="7.7")
    ended = StreamUpdate(kind="ended", turn="1", message_id="7.7")
    show(server, began, ended, source=source)
    show(server, began, StreamUpdate(kind="typing", turn="1", message_id="7.7"), ended)
    assert server.statuses == [
        ("C1", "5.5", "is thinking…"),
        ("C1", "5.5", ""),
        ("D1", "7.7", "is thinking…"),
        ("D1", "7.7", "is thinking…"),
        ("D1", "7.7", ""),
    ]


def test_short_turn_shows_no_status(server: SlackServer) -> None:
    async def act(adapter: SlackAdapter) -> None:
        await adapter.show(DM, StreamUpdate(kind="began", turn="1", message_id="7.7"))
        (task,) = adapter._statuses._by_turn.values()
        await adapter.show(DM, StreamUpdate(kind="ended", turn="1", message_id="7.7"))
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()

    call(server, act)
    assert server.statuses == []


def test_status_that_is_refused_is_not_tried_again_in_that_chat(server: SlackServer) -> None:
    server.spoil("assistant.threads.setStatus", refusal("missing_scope"))
    typing = StreamUpdate(kind="typing", turn="1", message_id="7.7")
    show(server, typing, typing, typing)
    assert server.count("assistant.threads.setStatus") == 1


def test_status_is_quiet_after_a_rate_limit_but_ends(server: SlackServer) -> None:
    """Messages need the calls more than a status does."""
    server.spoil("assistant.threads.setStatus", rate_limit(30))
    typing = StreamUpdate(kind="typing", turn="1", message_id="7.7")
    show(server, typing, typing, StreamUpdate(kind="ended", turn="1", message_id="7.7"))
    assert server.count("assistant.threads.setStatus") == 2
    assert server.statuses == [("D1", "7.7", "")]


def test_sends_are_limited_and_no_status_comes_before_them(
    server: SlackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_library, "MAX_SENDS", 2)
    server.spoil("chat.postMessage", Fault(200, end="never", times=None))

    async def act(adapter: SlackAdapter) -> None:
        sends = [asyncio.create_task(adapter.send(outgoing())) for _ in range(4)]
        await asyncio.to_thread(server.wait, lambda: server.count("chat.postMessage") >= 2)
        await adapter.show(DM, StreamUpdate(kind="typing", turn="1", message_id="7.7"))
        await asyncio.gather(*adapter._statuses._by_turn.values())
        await asyncio.sleep(0.2)
        for send in sends:
            send.cancel()
        await asyncio.gather(*sends, return_exceptions=True)

    call(server, act)
    assert server.count("chat.postMessage") == 2
    assert server.statuses == []


def test_status_that_is_cut_off_is_taken_away(server: SlackServer) -> None:
    """The turn ended while Slack was asked to show it: it may be shown."""
    server.spoil("assistant.threads.setStatus", Fault(takes=True, end="never"))

    async def act(adapter: SlackAdapter) -> None:
        await adapter.show(DM, StreamUpdate(kind="typing", turn="1", message_id="7.7"))
        await asyncio.to_thread(server.wait, lambda: bool(server.statuses))
        await adapter.show(DM, StreamUpdate(kind="ended", turn="1", message_id="7.7"))

    call(server, act)
    assert [status for _, _, status in server.statuses] == ["is thinking…", ""]


@pytest.mark.parametrize(
    "fault", [Fault(end="cut"), Fault(502, b"<html>"), Fault(200, b"{"), rate_limit(30)]
)
def test_show_never_fails(server: SlackServer, fault: Fault) -> None:
    server.spoil("assistant.threads.setStatus", fault)
    typing = StreamUpdate(kind="typing", turn="1", message_id="7.7")
    show(server, typing, StreamUpdate(kind="ended", turn="1", message_id="7.7"))


# -- the rest


def test_app_says_who_it_is(server: SlackServer) -> None:
    assert call(server, lambda adapter: adapter.identify()) == "@tertulia in Acme"
    server.app_token = "another"
    with pytest.raises(AccountProblem):
        call(server, lambda adapter: adapter.identify())


def test_commands_are_written_with_an_exclamation_mark(server: SlackServer) -> None:
    async def act(listener: Listener) -> None:
        await listener.adapter.fill_menu((MenuEntry("new", "Begin"),))
        for text in ("!new", f"<@{BOT}> /new now", "!wow", f"<@{BOT}>  !new"):
            server.write("D1", text)
        await listener.settled()

    texts = set(play(server, act).texts)
    assert texts == {"/new", "/new now", "!wow"}


def test_secrets_are_in_no_log_error_or_repr(
    server: SlackServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secrets = (APP_TOKEN, BOT_TOKEN, SIGNING_SECRET, "secret-ticket", "secret-F")
    errors: list[BaseException] = []
    file = server.add_file(b"content")
    media = Media(source=file["url_private"])
    upload = outgoing("", media=Media(name="a"), content=b"x")
    actions: dict[str, Callable[[SlackAdapter], Awaitable[Any]]] = {
        "chat.postMessage": lambda adapter: adapter.send(outgoing()),
        "auth.test": lambda adapter: adapter.identify(),
        "apps.connections.open": lambda adapter: adapter.identify(),
        "upload": lambda adapter: adapter.send(upload),
        "files-pri": lambda adapter: read_all(adapter, media),
    }
    faults = [
        Fault(end="cut"), Fault(takes=True, end="half"), Fault(502, b"<html>"),
        refusal("invalid_auth"), Fault(302, b"", headers={"Location": f"/x?token={BOT_TOKEN}"}),
    ]  # fmt: skip
    for operation, act in actions.items():
        for fault in faults:
            server.mend()
            server.spoil(operation, fault)
            try:
                call(server, act)
            except PlatformError as problem:
                errors.append(problem)

    async def listen(listener: Listener) -> None:
        server.mend()
        server.spoil("link", Fault(403, b"x"), Fault(end="cut"))
        server.write("D1", "hola")
        await listener.settled()
        server.on_sockets(close=1011)
        await listener.wait(lambda: server.hellos > 1)

    listener = play(server, listen)
    assert len(errors) > 15
    for error in errors:
        chain: BaseException | None = error
        while chain is not None:
            for text in (str(chain), repr(chain), repr(chain.__dict__), repr(chain.args)):
                assert not any(secret in text for secret in secrets)
            assert chain.__cause__ is None
            chain = chain.__context__
    assert "[hidden]" in caplog.text
    for secret in secrets:
        assert secret not in caplog.text
        assert secret not in repr(listener.adapter)
        assert secret not in repr(listener.adapter._api)
