"""The Slack on loopback satisfies Slack's own client: a fake proves nothing alone."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError
from slack_sdk.models.blocks import (
    ActionsBlock,
    ButtonElement,
    PlainTextObject,
    SectionBlock,
)
from slack_sdk.signature import SignatureVerifier
from slack_sdk.socket_mode import SocketModeClient
from slack_sdk.socket_mode.client import BaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse

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


@pytest.fixture
def server() -> Iterator[SlackServer]:
    with SlackServer() as running:
        yield running


@pytest.fixture
def client(server: SlackServer) -> WebClient:
    return WebClient(BOT_TOKEN, base_url=f"{server.url}/api/", retry_handlers=[])


def test_client_says_who_it_is_and_posts(server: SlackServer, client: WebClient) -> None:
    server.returns_own = False
    identity = client.auth_test()
    assert (identity["user_id"], identity["team_id"]) == (BOT, "T1")
    parent = server.message("C1", "UANA", "hola")["ts"]
    answer = client.chat_postMessage(channel="C1", markdown_text="**hola**", thread_ts=parent)
    assert server.sent[0].ts == answer["ts"]
    client.chat_update(channel="C1", ts=answer["ts"], markdown_text="**adiós**")
    assert server.edits == [("C1", answer["ts"], "**adiós**")]
    assert client.conversations_info(channel="C1")["channel"]["name"] == "garden"
    assert client.users_info(user="UANA")["user"]["profile"]["display_name"]
    assert client.conversations_open(users="UBEN")["channel"]["id"] == "DBEN"
    client.assistant_threads_setStatus(channel_id="C1", thread_ts=parent, status="is thinking…")
    assert server.statuses == [("C1", parent, "is thinking…")]


def test_client_posts_buttons_and_takes_them_away(server: SlackServer, client: WebClient) -> None:
    server.returns_own = False
    server.add_channel("C1")
    button = ButtonElement(text="Yes", value="once:1", action_id="a1", style="primary")
    blocks = [SectionBlock(text=PlainTextObject(text="May I?")), ActionsBlock(elements=[button])]
    ts = client.chat_postMessage(channel="C1", text="May I?", blocks=blocks, mrkdwn=False)["ts"]
    assert server.buttons("C1", ts) == [("Yes", "once:1")]
    client.chat_update(channel="C1", ts=ts, text="May I? Yes.", mrkdwn=False)
    assert server.buttons("C1", ts) == [("Yes", "once:1")]  # blocks stay if they are not named
    client.chat_update(channel="C1", ts=ts, text="May I? Yes.", blocks=[], mrkdwn=False)
    assert server.buttons("C1", ts) == []


def test_client_uploads_a_file(server: SlackServer, client: WebClient) -> None:
    server.returns_own = False
    server.add_channel("C1")
    client.files_upload_v2(channel="C1", content=b"%PDF", filename="a.pdf", initial_comment="see")
    (sent,) = server.sent
    assert (sent.file, sent.text) == (("a.pdf", b"%PDF"), "see")


def test_client_gets_the_errors_of_slack(server: SlackServer, client: WebClient) -> None:
    server.add_channel("C1")
    server.archived.add("C2")
    server.add_channel("C2")

    def error_of(**parameters: Any) -> str:
        with pytest.raises(SlackApiError) as caught:
            client.chat_postMessage(**{"channel": "C1", **parameters})
        return str(caught.value.response["error"])

    assert error_of(channel="C9", text="x") == "channel_not_found"
    assert error_of(channel="C2", text="x") == "is_archived"
    assert error_of(markdown_text="x" * 12_001) == "markdown_text_too_long"
    assert error_of(markdown_text="x", text="y") == "markdown_text_conflict"
    assert error_of(text="x", thread_ts="9.9") == "thread_not_found"
    server.spoil("chat.postMessage", rate_limit(17), refusal("internal_error"))
    with pytest.raises(SlackApiError) as limited:
        client.chat_postMessage(channel="C1", text="x")
    assert limited.value.response.headers["Retry-After"] == "17"
    assert error_of(text="x") == "internal_error"
    server.spoil("chat.postMessage", Fault(takes=True, end="cut"))
    with pytest.raises(OSError, match=r"."):
        client.chat_postMessage(channel="C1", text="taken all the same")
    assert len(server.sent) == 1
    server.revoke()
    assert error_of(text="x") == "invalid_auth"


def test_mentions_are_noted(server: SlackServer, client: WebClient) -> None:
    server.returns_own = False
    server.add_channel("C1")
    client.chat_postMessage(channel="C1", text="<!channel> <@UANA>", mrkdwn=False)
    assert server.pings == ["<!", "<@"]


def test_signature_is_accepted_by_the_verifier(server: SlackServer) -> None:
    verifier = SignatureVerifier(SIGNING_SECRET)
    body = json.dumps({"type": "event_callback", "text": "ñ"}).encode()
    assert verifier.is_valid_request(body, server.sign(body))
    assert not verifier.is_valid_request(body + b" ", server.sign(body))
    assert not verifier.is_valid_request(body, server.sign(body, at=0))


def test_socket_client_gets_each_event_until_it_acknowledges(
    server: SlackServer, client: WebClient
) -> None:
    server.ack_seconds = 0.5
    requests: list[SocketModeRequest] = []
    ignored = threading.Lock()

    def listen(socket: BaseSocketModeClient, request: SocketModeRequest) -> None:
        requests.append(request)
        if ignored.acquire(blocking=False):  # only the first one gets it
            return
        socket.send_socket_mode_response(SocketModeResponse(envelope_id=request.envelope_id))

    socket = SocketModeClient(app_token=APP_TOKEN, web_client=client)
    socket.socket_mode_request_listeners.append(listen)
    socket.connect()
    try:
        server.wait_sockets(1)
        server.write("C1", f"<@{BOT}> hola")
        server.wait_settled()
    finally:
        socket.close()
    assert [event.state for event in server.events] == ["acknowledged"] * 2
    kinds = [request.payload["event"]["type"] for request in requests]
    assert sorted(set(kinds)) == ["app_mention", "message"]
    assert len(kinds) == sum(event.sends for event in server.events) >= 3
    assert max(request.retry_attempt or 0 for request in requests) >= 1
    assert len({request.payload["event"]["ts"] for request in requests}) == 1
    assert server.violations == []
