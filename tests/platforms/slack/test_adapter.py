"""The Slack adapter against a Slack on loopback: every promise, and what happened to others."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tertulia.core.backoff import Backoff
from tertulia.core.media import Media
from tertulia.core.source import Source
from tertulia.errors import (
    AccessDenied,
    AccountProblem,
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
    HttpRequest,
    Incoming,
    MenuEntry,
    Outgoing,
    StreamUpdate,
    Update,
)
from tertulia.platforms.slack import adapter as adapter_module
from tertulia.platforms.slack import names, socket_mode
from tertulia.platforms.slack.adapter import SlackAdapter
from tertulia.platforms.slack.mrkdwn import format_text
from tertulia.testing.adapter_contract import AdapterContract, AdapterFixture, SendFailure
from tests.servers.scripted_http import Fault
from tests.servers.slack import (
    APP_TOKEN,
    BOT,
    BOT_TOKEN,
    SIGNING_SECRET,
    Event,
    SlackServer,
    rate_limit,
    refusal,
)

DM = Source("slack", "D1", user_id="UANA")


@pytest.fixture
def server() -> Iterator[SlackServer]:
    with SlackServer() as running:
        yield running
    assert running.violations == []
    assert running.pings == []


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses double as they do in production, from a shorter first one."""
    monkeypatch.setattr(adapter_module, "_RECONNECT", Backoff(first=0.02, longest=0.2))
    monkeypatch.setattr(socket_mode, "_RECONNECT", Backoff(first=0.02, longest=0.2))
    monkeypatch.setattr(socket_mode, "_STABLE_SECONDS", 0.0)


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


class TestSocketMode(AdapterContract):
    @asynccontextmanager
    async def scene(self) -> AsyncIterator[AdapterFixture]:
        with SlackServer() as server:
            server.ack_seconds = 2.0
            yield SlackScene(server, app_token=APP_TOKEN)
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


class TestEventsApi(AdapterContract):
    @asynccontextmanager
    async def scene(self) -> AsyncIterator[AdapterFixture]:
        with SlackServer() as server:
            yield EventsScene(server, signing_secret=SIGNING_SECRET)
            assert server.violations == []


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


async def post(server: SlackServer, adapter: Any, payload: Any, **changes: Any) -> int:
    """Post a signed request as Slack does; return the status, 503 for an error of the store."""
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    headers = server.sign(body) | changes
    try:
        request = HttpRequest(method="POST", headers=headers, body=body)
        return int((await adapter.respond(request)).status)
    except (StoreUnavailable, PlatformUnavailable):
        return 503


class Listener:
    """An adapter that listens, and what it handed over."""

    def __init__(self, server: SlackServer, **options: Any) -> None:
        options = {"app_token": APP_TOKEN, "connections": 1, **options}
        self.server = server
        self.adapter = SlackAdapter(
            options.pop("token", BOT_TOKEN), base_url=f"{server.url}/api", **options
        )
        self.updates: list[Update] = []
        self.failures: list[Exception] = []
        self.listening: asyncio.Task[None] | None = None

    async def receive(self, update: Update) -> None:
        if self.failures:
            raise self.failures.pop()
        self.updates.append(update)
        self.server.notify()

    @property
    def messages(self) -> list[Incoming]:
        return [update for update in self.updates if isinstance(update, Incoming)]

    @property
    def texts(self) -> list[str | None]:
        return [message.text for message in self.messages]

    async def wait(self, condition: Callable[[], bool]) -> None:
        await asyncio.to_thread(self.server.wait, condition)

    async def wait_texts(self, *texts: str) -> None:
        await self.wait(lambda: len(self.messages) >= len(texts))
        assert self.texts == list(texts)

    async def wait_state(self, is_listening: bool) -> None:
        while self.adapter.state.listening is not is_listening:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    async def settled(self, *events: Event) -> None:
        await asyncio.to_thread(self.server.wait_settled, *events)

    def start(self) -> None:
        self.listening = asyncio.create_task(self.adapter.listen(self.receive))

    async def stop(self) -> None:
        assert self.listening is not None
        self.listening.cancel()
        await asyncio.gather(self.listening, return_exceptions=True)


def play(
    server: SlackServer, act: Callable[[Listener], Awaitable[None]], **options: Any
) -> Listener:
    """Run `act` while an adapter listens."""

    async def run() -> Listener:
        listener = Listener(server, **options)
        async with asyncio.timeout(60):
            listener.start()
            try:
                await act(listener)
            finally:
                await listener.stop()
                await listener.adapter.close()
        return listener

    return asyncio.run(run())


def call(server: SlackServer, act: Callable[[SlackAdapter], Awaitable[Any]]) -> Any:
    """Run `act` with an adapter that does not listen."""
    server.add_channel("D1")
    server.add_channel("C1")

    async def run() -> Any:
        adapter = SlackAdapter(BOT_TOKEN, app_token=APP_TOKEN, base_url=f"{server.url}/api")
        try:
            async with asyncio.timeout(60):
                return await act(adapter)
        finally:
            await adapter.close()

    return asyncio.run(run())


def outgoing(text: str = "hola", **fields: Any) -> Outgoing:
    return Outgoing(**{"delivery": "d1", "chat_id": "D1", "text": text, **fields})


def formatted(markdown: str, **fields: Any) -> Outgoing:
    (part,) = format_text(markdown)
    return outgoing(part.text, spans=part.spans, **fields)


# -- receiving


def test_mention_that_comes_as_two_events_has_one_id(server: SlackServer) -> None:
    """One mention, two answers: the two events have different ids, but the same `ts`."""

    async def act(listener: Listener) -> None:
        server.write("C1", f"<@{BOT}> hola")
        await listener.settled()

    listener = play(server, act)
    first, second = listener.messages
    assert (first.message_id, first.source) == (second.message_id, second.source)
    assert first.is_addressed
    assert second.is_addressed
    assert first.text == "@tertulia hola"


def test_event_that_was_not_stored_is_taken_when_it_is_repeated(server: SlackServer) -> None:
    """Slack's retry was dropped as a duplicate: it was the only delivery."""
    server.ack_seconds = 0.3

    async def act(listener: Listener) -> None:
        listener.failures = [StoreUnavailable("locked", hint="wait")]
        server.write("D1", "hola")
        await listener.settled()

    listener = play(server, act)
    assert listener.texts == ["hola"]
    (event,) = server.events
    assert (event.state, event.sends) == ("acknowledged", 2)


def test_repeated_request_is_taken(server: SlackServer) -> None:
    """The same for the Events API, whose repeated requests say that they are."""

    async def act(listener: Listener) -> None:
        await listener.wait_state(True)
        payload = {"type": "event_callback", "team_id": "T1",
                   "event": server.message("D1", "UANA", "hola")}  # fmt: skip
        changes = {"x-slack-retry-num": "1", "x-slack-retry-reason": "http_timeout"}
        assert await post(server, listener.adapter, payload, **changes) == 200

    listener = play(server, act, app_token=None, signing_secret=SIGNING_SECRET)
    assert listener.texts == ["hola"]


def test_slow_store_makes_the_same_message_again(server: SlackServer) -> None:
    """Work inside the three seconds: the message comes again, with the same id."""
    server.ack_seconds = 0.2
    first = asyncio.Event()

    async def act(listener: Listener) -> None:
        store = listener.receive

        async def slow(update: Update) -> None:
            if not first.is_set():
                first.set()
                await asyncio.to_thread(server.wait, lambda: server.events[0].sends > 1)
            await store(update)

        await listener.stop()
        listener.receive = slow  # type: ignore[method-assign]
        listener.start()
        server.write("D1", "slow")
        await listener.wait(lambda: server.events[0].state == "acknowledged")

    listener = play(server, act)
    assert len(listener.messages) >= 1
    assert len({message.message_id for message in listener.messages}) == 1


def test_each_event_goes_to_one_of_several_connections(server: SlackServer) -> None:
    async def act(listener: Listener) -> None:
        await asyncio.to_thread(server.wait_sockets, 3)
        for number in range(30):
            server.write(f"D{number % 3}", f"m{number}")
        await listener.settled()

    listener = play(server, act, connections=3)
    assert sorted(listener.texts, key=str) == sorted(f"m{number}" for number in range(30))
    assert server.most_sockets == 3


def test_connection_is_replaced_before_it_is_closed(server: SlackServer) -> None:
    async def act(listener: Listener) -> None:
        await asyncio.to_thread(server.wait_sockets, 1)
        for number in range(5):
            server.on_sockets(disconnect="refresh_requested")
            server.write("D1", f"m{number}")
            await asyncio.to_thread(server.wait_replaced, number + 2)
        await listener.settled()
        assert listener.adapter.state.listening

    listener = play(server, act)
    assert set(listener.texts) == {f"m{number}" for number in range(5)}
    assert server.most_sockets == 2


@pytest.mark.parametrize("trouble", [1000, 1001, 1011, 4000, None, "garbage", "unmasked"])
def test_broken_connection_is_made_anew(server: SlackServer, trouble: object) -> None:
    async def act(listener: Listener) -> None:
        server.write("D1", "before")
        await listener.settled()
        if trouble == "garbage":
            server.send_raw(b"\xff\xff\xff garbage")
        elif trouble == "unmasked":
            server.send_raw(b"\x81\x02\xff\xfe")  # a text that is no UTF-8
        else:
            server.on_sockets(close=trouble if isinstance(trouble, int) else None)
        await listener.wait(lambda: server.hellos > 1)
        server.write("D1", "after")
        await listener.wait_texts("before", "after")

    play(server, act)


def test_silent_connection_is_dropped(server: SlackServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deaf for hours while the status said connected."""
    monkeypatch.setattr(socket_mode, "_PING_SECONDS", 0.05)
    monkeypatch.setattr(socket_mode, "_PONG_SECONDS", 0.3)
    monkeypatch.setattr(socket_mode, "_HELLO_SECONDS", 0.3)
    server.ack_seconds = 0.5
    server.pauses = (0.1,) * 50

    async def act(listener: Listener) -> None:
        server.write("D1", "before")
        await listener.settled()
        server.says_hello = False
        server.mute()
        server.write("D1", "meanwhile")
        await listener.wait_state(False)
        assert listener.adapter.state.problem
        server.says_hello, server.is_silent = True, False
        await listener.wait_texts("before", "meanwhile")
        await listener.wait_state(True)

    play(server, act)


@pytest.mark.parametrize(
    "fault",
    [
        Fault(500, b""),
        Fault(502, b"<html>bad gateway</html>", "text/html"),
        Fault(200, b"<html>hotel wifi</html>", "text/html"),
        Fault(200, b""),
        Fault(200, b'{"ok":true}'),
        Fault(200, b'{"ok":true,"url":5}'),
        Fault(200, b'{"ok":true,"url":"ws://127.0.0.1:1/link/?ticket=x"}'),
        Fault(200, b'{"ok":tr'),
        Fault(end="cut"),
        Fault(end="half"),
        Fault(302, b""),
        rate_limit(0.1),
        refusal("internal_error"),
        refusal("an_error_of_next_year"),
    ],
)
@pytest.mark.parametrize("operation", ["apps.connections.open", "link"])
def test_no_fault_of_a_connection_ends_listening(
    server: SlackServer, fault: Fault, operation: str
) -> None:
    async def act(listener: Listener) -> None:
        server.spoil(operation, fault, fault)
        server.write("D1", "hola")
        await listener.wait_texts("hola")
        await listener.wait_state(True)

    play(server, act)


def test_slack_that_cannot_be_reached_is_reached_later(server: SlackServer) -> None:
    async def act(listener: Listener) -> None:
        server.write("D1", "before")
        await listener.settled()
        server.refuse()
        await listener.wait_state(False)
        assert listener.adapter.state.problem
        server.open()
        server.write("D1", "after")
        await listener.wait_texts("before", "after")

    play(server, act)


def test_events_that_are_not_understood_are_skipped(
    server: SlackServer, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "a text that nobody may read in a log"
    bad: list[Any] = [
        None,
        [secret],
        {"type": "message", "text": secret},
        {"type": "message", "text": secret, "channel": 5, "ts": "1", "user": "U1"},
        {"type": "message", "text": secret, "channel": "D1", "ts": None, "user": "U1"},
        {"type": "message", "subtype": "message_changed", "channel": "D1", "message": secret},
        {"type": "message", "subtype": "message_deleted", "channel": "D1"},
        {"type": "message", "text": secret, "channel": "D1", "ts": "1", "files": [secret]},
        {"type": "reaction_added", "item": secret},
        {"type": "a_kind_of_next_year", "text": secret},
        {"type": {"nested": secret}},
        {},
    ]

    async def act(listener: Listener) -> None:
        for event in bad:
            server.push(event)
        for text in (
            '{"envelope_id": "ENVELOPE", "payload": {"text": "' + secret,
            '{"envelope_id": "ENVELOPE", "type": "slash_commands", "payload": {"text": "x"}}',
            '{"envelope_id": "ENVELOPE", "type": "events_api", "payload": ["x"]}',
        ):
            server.push_payload(text)
        server.write("D1", "\ud83d lone")
        server.write("D1", "after all of them")
        await listener.settled()
        assert "after all of them" in listener.texts

    listener = play(server, act)
    assert "\ud83d lone" in listener.texts
    assert [event.state for event in server.events] == ["acknowledged"] * len(server.events)
    assert all(event.sends == 1 for event in server.events)
    assert "not understood" in caplog.text
    assert secret not in caplog.text


def test_huge_event_is_received(server: SlackServer) -> None:
    text = "x" * (16 * 2**20)
    server.ack_seconds = 60

    async def act(listener: Listener) -> None:
        server.write("D1", text)
        await listener.wait_texts(text)

    play(server, act)


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


def test_names_that_cannot_be_asked_delay_nothing(
    server: SlackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "_WAIT_SECONDS", 0.05)
    server.spoil("users.info", Fault(end="never", times=None))
    server.spoil("conversations.info", refusal("missing_scope", times=None))

    async def act(listener: Listener) -> None:
        for number in range(5):
            server.write("C1", f"<@{BOT}> m{number}")
        await listener.settled()

    listener = play(server, act)
    assert {message.source.user_name for message in listener.messages} == {None}
    assert all(event.sends == 1 for event in server.events)


# -- several workspaces


def test_event_reaches_the_account_of_its_workspace(server: SlackServer) -> None:
    server.add_workspace("T2", "xoxb-2-fake")

    async def act(listener: Listener) -> None:
        other = Listener(server, token="xoxb-2-fake", account="second")
        other.start()
        try:
            await asyncio.to_thread(server.wait_sockets, 2)
            for number in range(6):
                server.write("D1", f"first {number}")
                server.write("D2", f"second {number}", team="T2")
            await listener.settled()
            assert sorted(map(str, other.texts)) == [f"second {number}" for number in range(6)]
            assert {message.source.account for message in other.messages} == {"second"}
        finally:
            await other.stop()
            await other.adapter.close()

    listener = play(server, act)
    assert sorted(map(str, listener.texts)) == [f"first {number}" for number in range(6)]


def test_event_waits_for_an_account_that_is_not_connected_yet(server: SlackServer) -> None:
    server.add_workspace("T2", "xoxb-2-fake")
    server.ack_seconds = 0.2
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


# -- the Events API


def test_unsigned_or_old_requests_are_refused(server: SlackServer) -> None:
    payload = {"type": "event_callback", "team_id": "T1", "event": {}}

    async def act(listener: Listener) -> None:
        body = json.dumps(payload).encode()
        signed = server.sign(body)
        for headers in (
            {},
            signed | {"x-slack-signature": "v0=" + "0" * 64},
            signed | {"x-slack-signature": "v0=ñ"},
            signed | {"x-slack-request-timestamp": "now"},
            server.sign(body, at=0),
            server.sign(b"another body"),
        ):
            request = HttpRequest(method="POST", headers=headers, body=body)
            with pytest.raises(AccessDenied):
                await listener.adapter.respond(request)

    assert play(server, act, app_token=None, signing_secret=SIGNING_SECRET).updates == []


def test_address_is_verified_with_the_challenge(server: SlackServer) -> None:
    body = json.dumps({"type": "url_verification", "challenge": "3eZbrw1aB", "token": "x"}).encode()

    async def act(adapter: SlackAdapter) -> None:
        other = SlackAdapter(BOT_TOKEN, signing_secret=SIGNING_SECRET, base_url=f"{server.url}/api")
        request = HttpRequest(method="POST", headers=server.sign(body), body=body)
        assert (await other.respond(request)).body == b"3eZbrw1aB"
        await other.close()

    call(server, act)


def test_bad_requests_are_acknowledged(server: SlackServer) -> None:
    async def act(listener: Listener) -> None:
        await listener.wait_state(True)
        bodies: list[Any] = [
            b"{", b"[1]", b"", b"\xff", {"type": "next_year"}, {"type": "event_callback"},
            {"type": "event_callback", "event": {"type": "message"}},
        ]  # fmt: skip
        for body in bodies:
            assert await post(server, listener.adapter, body) == 200

    assert play(server, act, app_token=None, signing_secret=SIGNING_SECRET).updates == []


def test_request_before_listening_is_not_acknowledged(server: SlackServer) -> None:
    async def act(adapter: SlackAdapter) -> None:
        other = SlackAdapter(BOT_TOKEN, signing_secret=SIGNING_SECRET, base_url=f"{server.url}/api")
        payload = {"type": "event_callback", "team_id": "T1",
                   "event": server.message("D1", "UANA", "hola")}  # fmt: skip
        assert await post(server, other, payload) == 503
        await other.close()

    call(server, act)


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
        assert server.hellos == 1

    play(server, act)


# -- sending


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (refusal("channel_not_found"), Refused),
        (refusal("not_in_channel"), Refused),
        (refusal("is_archived"), Refused),
        (refusal("restricted_action_thread_only_channel"), Refused),
        (refusal("no_text"), Refused),
        (refusal("an_error_of_next_year"), Refused),
        (refusal("msg_too_long"), TooLarge),
        (refusal("markdown_text_too_long"), TooLarge),
        (refusal("invalid_auth"), AccountProblem),
        (refusal("token_revoked"), AccountProblem),
        (refusal("account_inactive"), AccountProblem),
        (refusal("missing_scope"), AccountProblem),
        (refusal("ratelimited"), RateLimited),
        (rate_limit(30), RateLimited),
        (rate_limit(None), RateLimited),
        (Fault(429, b"<html>", "text/html"), RateLimited),
        (refusal("internal_error"), OutcomeUnknown),
        (refusal("fatal_error"), OutcomeUnknown),
        (Fault(500, b'{"ok":false,"error":"x"}'), OutcomeUnknown),
        (Fault(503, b""), OutcomeUnknown),
        (Fault(200, b"<html>", "text/html"), OutcomeUnknown),
        (Fault(200, b""), OutcomeUnknown),
        (Fault(takes=True, end="half"), OutcomeUnknown),
        (Fault(takes=True, end="cut"), OutcomeUnknown),
        (Fault(413, b"too large"), TooLarge),
        (Fault(302, b""), PlatformUnavailable),
        (refusal("team_added_to_org"), PlatformUnavailable),
    ],
)
def test_outcome_of_a_send(server: SlackServer, fault: Fault, kind: type[PlatformError]) -> None:
    server.spoil("chat.postMessage", fault)
    with pytest.raises(PlatformError) as caught:
        call(server, lambda adapter: adapter.send(outgoing()))
    assert type(caught.value) is kind
    assert caught.value.hint
    assert server.count("chat.postMessage") == 1


@pytest.mark.parametrize("seconds", [2, 1800])
def test_pause_that_slack_asks_for_is_reported(server: SlackServer, seconds: int) -> None:
    server.spoil("chat.postMessage", rate_limit(seconds))
    with pytest.raises(RateLimited) as caught:
        call(server, lambda adapter: adapter.send(outgoing()))
    assert caught.value.retry_after == seconds


def test_answer_in_a_thread_stays_there(server: SlackServer) -> None:
    parent = server.message("C1", "UANA", "parent")["ts"]

    async def act(adapter: SlackAdapter) -> None:
        await adapter.send(outgoing("in it", chat_id="C1", thread_id=parent))
        await adapter.send(outgoing("beside it", chat_id="C1"))
        with pytest.raises(Refused):
            await adapter.send(outgoing("lost", chat_id="C1", thread_id="1.2"))

    call(server, act)
    assert [(sent.text, sent.thread) for sent in server.sent] == [
        ("in it", parent),
        ("beside it", None),
    ]


def test_message_to_a_person_goes_to_the_chat_with_that_person(server: SlackServer) -> None:
    """ "Sent" to a person's id where a channel's was needed."""
    call(server, lambda adapter: adapter.send(outgoing(chat_id="UBEN")))
    assert [sent.channel for sent in server.sent] == ["DBEN"]


def test_nothing_that_the_agent_writes_pings_anybody(server: SlackServer) -> None:
    text = "<!channel> <!here> <@UANA> <#C1> @here @channel `<!everyone>` <!subteam^S1>"

    async def act(adapter: SlackAdapter) -> None:
        await adapter.send(formatted(f"**bold** {text}\n\n```\n{text}\n```"))
        await adapter.send(outgoing(text))
        file = Media(name="a.txt", type="text/plain")
        await adapter.send(outgoing(text, media=file, content=b"x"))

    call(server, act)
    assert [sent.is_markdown for sent in server.sent] == [True, False, False]
    assert server.sent[1].text == text
    assert "\u2060" in server.sent[0].text


def test_formatting_that_is_refused_is_left_out(server: SlackServer) -> None:
    """Unparsable formatting was retried until given up."""
    server.spoil("chat.postMessage", refusal("invalid_blocks"))

    async def act(adapter: SlackAdapter) -> None:
        await adapter.send(formatted("**bold** & [link](https://example.org)"))
        await adapter.send(formatted("**bold**"))

    call(server, act)
    assert [(sent.text, sent.is_markdown) for sent in server.sent] == [
        ("bold & link (https://example.org)", False),
        ("**bold**", True),
    ]


def test_server_without_markdown_gets_plain_texts(server: SlackServer) -> None:
    """Every send was refused, because the server was older than the message form."""
    server.has_markdown = False

    async def act(adapter: SlackAdapter) -> None:
        for _ in range(3):
            await adapter.send(formatted("**bold**"))

    call(server, act)
    assert server.texts == ["bold"] * 3
    assert server.count("chat.postMessage") == 4


def test_long_plain_text_is_sent_whole(server: SlackServer) -> None:
    call(server, lambda adapter: adapter.send(outgoing("<&>" * 1300)))
    (message,) = server.sent
    assert message.is_markdown
    assert len(message.text) < 12_000


def test_lone_surrogate_is_sent(server: SlackServer) -> None:
    call(server, lambda adapter: adapter.send(outgoing("\ud83d lone")))
    assert server.texts == ["? lone"]


def test_file_is_uploaded_and_shared_once(server: SlackServer) -> None:
    parent = server.message("C1", "UANA", "parent")["ts"]
    file = Media(name="plan.pdf", type="application/pdf")
    message = outgoing("see <this>", media=file, content=b"%PDF-1", chat_id="C1", thread_id=parent)
    ts = call(server, lambda adapter: adapter.send(message))
    (sent,) = server.sent
    assert sent.file == ("plan.pdf", b"%PDF-1")
    assert (sent.channel, sent.thread, sent.text, sent.ts) == ("C1", parent, "see <this>", ts)


@pytest.mark.parametrize(
    ("operation", "fault", "kind", "is_sent"),
    [
        ("files.getUploadURLExternal", Fault(takes=True, end="cut"), PlatformUnavailable, False),
        ("files.getUploadURLExternal", refusal("missing_scope"), Refused, False),
        ("files.getUploadURLExternal", Fault(200, b'{"ok":true}'), PlatformUnavailable, False),
        ("upload", Fault(takes=True, end="cut"), PlatformUnavailable, False),
        ("upload", Fault(500, b""), PlatformUnavailable, False),
        ("upload", Fault(413, b""), TooLarge, False),
        ("files.completeUploadExternal", Fault(takes=True, end="cut"), OutcomeUnknown, True),
        ("files.completeUploadExternal", refusal("not_in_channel"), Refused, False),
        ("files.completeUploadExternal", refusal("invalid_arguments"), Refused, False),
    ],
)
def test_outcome_of_a_file(
    server: SlackServer, operation: str, fault: Fault, kind: type[PlatformError], is_sent: bool
) -> None:
    server.spoil(operation, fault)
    file = outgoing("", media=Media(name="a.bin"), content=b"x")
    with pytest.raises(PlatformError) as caught:
        call(server, lambda adapter: adapter.send(file))
    assert type(caught.value) is kind
    assert bool(server.sent) is is_sent


# -- files that people sent


async def read_all(adapter: SlackAdapter, media: Media) -> bytes:
    return b"".join([piece async for piece in adapter.fetch(media)])


def test_file_is_fetched_by_its_address_or_its_id(server: SlackServer) -> None:
    file = server.add_file(b"\x89PNG...")
    by_address = Media(source=file["url_private_download"], type="image/png")
    by_id = Media(source=file["id"])
    assert call(server, lambda adapter: read_all(adapter, by_address)) == b"\x89PNG..."
    assert call(server, lambda adapter: read_all(adapter, by_id)) == b"\x89PNG..."


def test_login_page_is_no_file(server: SlackServer) -> None:
    file = server.add_file(b"\x89PNG...")
    server.expired.add(file["id"])
    media = Media(source=file["url_private_download"], type="image/png")
    with pytest.raises(Refused):
        call(server, lambda adapter: read_all(adapter, media))


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault(404, b""), Refused),
        (Fault(302, b"", headers={"Location": "https://evil.example"}), Refused),
        (Fault(500, b""), PlatformUnavailable),
        (Fault(429, b""), PlatformUnavailable),
        (Fault(end="cut"), PlatformUnavailable),
        (Fault(end="half"), PlatformUnavailable),
    ],
)
def test_file_that_cannot_be_fetched(
    server: SlackServer, fault: Fault, kind: type[PlatformError]
) -> None:
    file = server.add_file(b"x" * 1000)
    server.spoil("files-pri", fault)
    with pytest.raises(kind):
        call(server, lambda adapter: read_all(adapter, Media(source=file["url_private"])))


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example/files-pri/F1",
        "https://slack.com.evil.example/F1",
        "http://files.slack.com/F1",
        "https://evilslack.com/F1",
        "http://[",
    ],
)
def test_token_goes_to_slack_only(server: SlackServer, url: str) -> None:
    with pytest.raises(Refused, match="not kept by Slack"):
        call(server, lambda adapter: read_all(adapter, Media(source=url)))


def test_file_without_end_may_be_closed(server: SlackServer) -> None:
    file = server.add_file(None)

    async def act(adapter: SlackAdapter) -> None:
        stream = adapter.fetch(Media(source=file["url_private"]))
        assert await anext(stream)
        await stream.aclose()

    call(server, act)


# -- show


def show(server: SlackServer, *updates: StreamUpdate, source: Source = DM) -> None:
    async def act(adapter: SlackAdapter) -> None:
        for update in updates:
            await adapter.show(source, update)
            await asyncio.gather(*adapter._statuses.values())

    call(server, act)


def test_status_is_shown_in_the_thread_and_ends(
    server: SlackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter_module, "_STATUS_DELAY", 0.0)
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
        for kind in ("began", "ended"):
            update = StreamUpdate(kind=kind, turn="1", message_id="7.7")
            await adapter.show(DM, update)

    call(server, act)
    assert server.statuses == []


def test_status_that_is_refused_is_not_tried_again_in_that_chat(server: SlackServer) -> None:
    server.spoil("assistant.threads.setStatus", refusal("missing_scope"))
    typing = StreamUpdate(kind="typing", turn="1", message_id="7.7")
    show(server, typing, typing, typing)
    assert server.count("assistant.threads.setStatus") == 1


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
