"""Socket Mode against a Slack on loopback: connections, envelopes, what happened to others."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tertulia.core.backoff import Backoff
from tertulia.errors import (
    StoreUnavailable,
)
from tertulia.platforms.base import (
    Update,
)
from tertulia.platforms.slack import socket_mode
from tests.platforms.slack.slack_scene import (
    Listener,
    play,
)
from tests.servers.scripted_http import Fault
from tests.servers.slack import (
    BOT,
    SlackServer,
    rate_limit,
    refusal,
)


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
    server.ack_seconds = 1.0

    async def act(listener: Listener) -> None:
        listener.failures = [StoreUnavailable("locked", hint="wait")]
        server.write("D1", "hola")
        await listener.settled()

    listener = play(server, act)
    assert listener.texts == ["hola"]
    (event,) = server.events
    assert (event.state, event.sends) == ("acknowledged", 2)


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
            '{"envelope_id": "ENVELOPE", "type": "events_api"}',
            '{"envelope_id": "ENVELOPE", "payload": ' + "[" * 100_000,
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


def test_envelope_that_is_no_object_is_skipped(server: SlackServer) -> None:
    async def act(listener: Listener) -> None:
        await asyncio.to_thread(server.wait_sockets, 1)
        for text in ("[1]", "5", "null", '"hello"'):
            server.run(server.open_sockets[0].send(text))
        server.write("D1", "hola")
        await listener.wait_texts("hola")
        assert server.hellos == 1

    play(server, act)


def test_envelope_of_another_kind_is_no_event(server: SlackServer) -> None:
    payload = server.payload(server.message("D1", "UANA", "not an event"))
    envelope = {"envelope_id": "ENVELOPE", "type": "slash_commands", "payload": payload}

    async def act(listener: Listener) -> None:
        await listener.settled(server.push_payload(json.dumps(envelope)))

    assert play(server, act).updates == []
    assert server.events[0].state == "acknowledged"


def test_event_in_progress_is_acknowledged_before_its_connection_is_closed(
    server: SlackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut off, it would come again, a minute later."""
    monkeypatch.setattr(socket_mode, "_DRAIN_SECONDS", 60.0)
    server.ack_seconds = 60
    came, may_end = asyncio.Event(), asyncio.Event()

    async def act(listener: Listener) -> None:
        store = listener.receive

        async def slow(update: Update) -> None:
            came.set()
            await may_end.wait()
            await store(update)

        await listener.stop()
        listener.receive = slow  # type: ignore[method-assign]
        listener.start()
        server.write("D1", "hola")
        await came.wait()
        hellos = server.hellos
        server.on_sockets(disconnect="refresh_requested")
        await listener.wait(lambda: server.hellos > hellos)
        await asyncio.sleep(0.2)  # the old connection is being closed by now
        may_end.set()
        await listener.settled()

    listener = play(server, act)
    assert listener.texts == ["hola"]
    assert server.events[0].sends == 1


def test_connection_that_ends_at_once_is_not_replaced_at_once(
    server: SlackServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Beyond ten connections Slack ends one for each new one: two gateways would never rest."""
    monkeypatch.setattr(socket_mode, "_STABLE_SECONDS", 60.0)
    monkeypatch.setattr(socket_mode, "_RECONNECT", Backoff(first=60, longest=60))

    async def act(listener: Listener) -> None:
        await asyncio.to_thread(server.wait_sockets, 1)
        await listener.wait_state(True)
        server.on_sockets(disconnect="too_many_websockets")
        while "at once" not in caplog.text and server.hellos == 1:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        server.write("D1", "still heard")
        await listener.wait_texts("still heard")

    play(server, act)
    assert server.hellos == 1


def test_connection_without_a_hello_is_made_anew(
    server: SlackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers pings, and no event ever comes on it."""
    monkeypatch.setattr(socket_mode, "_HELLO_SECONDS", 0.2)
    server.says_hello = False

    async def act(listener: Listener) -> None:
        await listener.wait(lambda: server.hellos > 1)
        assert not listener.adapter.state.listening
        server.says_hello = True
        await listener.wait_state(True)

    play(server, act)


def test_one_lost_connection_of_two_is_no_problem_of_the_account(server: SlackServer) -> None:
    async def act(listener: Listener) -> None:
        await asyncio.to_thread(server.wait_sockets, 2)
        server.write("D1", "on one")
        server.write("D2", "on the other")
        await listener.settled()
        server.spoil("apps.connections.open", Fault(500, b"", times=None))
        count = server.count("apps.connections.open")
        server.run(server.open_sockets[0].close(1011))
        await listener.wait(lambda: server.count("apps.connections.open") > count + 2)
        assert listener.adapter.state.listening
        assert listener.adapter.state.problem is None
        server.mend()
        await asyncio.to_thread(server.wait_sockets, 2)

    play(server, act, connections=2)


def test_events_that_wait_to_be_stored_are_limited(
    server: SlackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that stands still must not fill the memory; Slack keeps the rest."""
    monkeypatch.setattr(socket_mode, "_MAX_WAITING", 3)
    server.ack_seconds = 60
    may_end = asyncio.Event()
    waiting: list[Update] = []

    async def act(listener: Listener) -> None:
        store = listener.receive

        async def slow(update: Update) -> None:
            waiting.append(update)
            await may_end.wait()
            await store(update)

        await listener.stop()
        listener.receive = slow  # type: ignore[method-assign]
        listener.start()
        for number in range(8):
            server.write(f"D{number}", f"m{number}")
        while len(waiting) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        assert len(waiting) == 3
        may_end.set()
        await listener.settled()

    listener = play(server, act)
    assert sorted(map(str, listener.texts)) == [f"m{number}" for number in range(8)]


def test_huge_event_is_received(server: SlackServer) -> None:
    text = "x" * (16 * 2**20)
    server.ack_seconds = 60

    async def act(listener: Listener) -> None:
        server.write("D1", text)
        await listener.wait_texts(text)

    play(server, act)
