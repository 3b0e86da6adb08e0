"""The Events API: signed requests of Slack."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tertulia.errors import (
    AccessDenied,
    NotFound,
)
from tertulia.platforms.base import (
    HttpRequest,
)
from tertulia.platforms.slack.adapter import SlackAdapter
from tests.platforms.slack.slack_scene import (
    Listener,
    call,
    play,
    post,
)
from tests.servers.slack import (
    BOT_TOKEN,
    SIGNING_SECRET,
    SlackServer,
)


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


@pytest.mark.parametrize(
    "payload",
    [
        {"type": "event_callback", "team_id": "T1", "event": {}},
        {"type": "url_verification", "challenge": "3eZbrw1aB"},
    ],
)
def test_unsigned_or_old_requests_are_refused(server: SlackServer, payload: dict[str, Any]) -> None:
    async def act(listener: Listener) -> None:
        await listener.wait_state(True)
        heard_at = listener.adapter.state.heard_at
        body = json.dumps(payload).encode()
        signed = server.sign(body)
        for headers in (
            {},
            signed | {"x-slack-signature": "v0=" + "0" * 64},
            signed | {"x-slack-signature": "v0=ñ"},
            signed | {"x-slack-request-timestamp": "now"},
            server.sign(body, at=0),
            server.sign(body, at=time.time() - 310),
            server.sign(body, at=time.time() + 600),
            server.sign(body, at=int("9" * 4000)),
            signed | {"x-slack-request-timestamp": "9" * 5000},
            signed | {"x-slack-request-timestamp": "²"},
            server.sign(b"another body"),
        ):
            request = HttpRequest(method="POST", headers=headers, body=body)
            with pytest.raises(AccessDenied):
                await listener.adapter.respond(request)
        assert listener.adapter.state.heard_at == heard_at  # a stranger is no sign of life

    assert play(server, act, app_token=None, signing_secret=SIGNING_SECRET).updates == []


def test_app_with_a_socket_takes_no_requests(server: SlackServer) -> None:
    """Without a secret nobody can tell whether Slack wrote them."""

    async def act(listener: Listener) -> None:
        await listener.wait_state(True)
        payload = server.payload(server.message("D1", "UANA", "forged"))
        with pytest.raises(NotFound):
            await post(server, listener.adapter, payload)

    assert play(server, act).updates == []


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
            {"type": "event_callback", "event": {"type": "message"}}, b"[" * 100_000,
        ]  # fmt: skip
        for body in bodies:
            assert await post(server, listener.adapter, body) == 200

    assert play(server, act, app_token=None, signing_secret=SIGNING_SECRET).updates == []


def test_request_after_listening_has_ended_is_not_acknowledged(server: SlackServer) -> None:
    """The gateway drains: another node, or the next process, takes the event."""

    async def act(listener: Listener) -> None:
        await listener.wait_state(True)
        await listener.stop()
        payload = {"type": "event_callback", "team_id": "T1",
                   "event": server.message("D1", "UANA", "hola")}  # fmt: skip
        assert await post(server, listener.adapter, payload) == 503

    listener = play(server, act, app_token=None, signing_secret=SIGNING_SECRET)
    assert listener.updates == []


def test_request_before_listening_is_not_acknowledged(server: SlackServer) -> None:
    async def act(adapter: SlackAdapter) -> None:
        other = SlackAdapter(BOT_TOKEN, signing_secret=SIGNING_SECRET, base_url=f"{server.url}/api")
        payload = {"type": "event_callback", "team_id": "T1",
                   "event": server.message("D1", "UANA", "hola")}  # fmt: skip
        assert await post(server, other, payload) == 503
        await other.close()

    call(server, act)
