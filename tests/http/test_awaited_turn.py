"""Callers that wait: their turns are limited, end when they leave, and repeats are recognised."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import openai
import pytest

from tertulia.agents import ParrotAgent
from tertulia.agents.base import Event, Request
from tertulia.errors import AgentUnavailable
from tertulia.gateway.settings import GatewaySettings
from tertulia.http import awaited_turn
from tertulia.http.event_stream import StreamedTurn
from tests.http.agents import HeldAgent
from tests.http.served_gateway import PATIENCE, SECRETS, eventually, served_gateway
from tests.http.test_connections import connect

FOUR = GatewaySettings(turns=4, turns_per_person=3, drain_seconds=2)


class FailingAgent(ParrotAgent):
    """An agent whose model is not available for the first calls."""

    def __init__(self, failures: int) -> None:
        super().__init__()
        self.failures = failures

    async def run(self, request: Request) -> AsyncGenerator[Event, None]:
        if self.failures:
            self.failures -= 1
            raise AgentUnavailable("The model is overloaded.")
        async for event in super().run(request):
            yield event


@contextmanager
def posting(pool: ThreadPoolExecutor, agent: HeldAgent) -> Iterator[None]:
    try:
        yield
    finally:
        agent.may_go_on.set()
        pool.shutdown()


def test_turns_of_a_person_and_of_the_node_are_limited(tmp_path: Path) -> None:
    """One guest token had 240 programs running, with `turns = 4`."""
    agent, pool = HeldAgent(), ThreadPoolExecutor(8)
    with (
        served_gateway(tmp_path / "talk.db", agent=agent, rules=FOUR, wait_seconds=0.2) as server,
        server.client("eve") as eve,
        server.client("bob") as bob,
        server.client("ana") as ana,
        posting(pool, agent),
    ):
        first = [pool.submit(eve.post, "/turns", json={"text": "hola"}) for _ in range(3)]
        for _ in first:
            assert agent.began.acquire(timeout=PATIENCE)
        refused = eve.post("/turns", json={"text": "more"})
        assert refused.status_code == 429
        assert refused.json()["error"]["code"] == "limit_exceeded"
        assert int(refused.headers["retry-after"]) >= 1
        other = pool.submit(bob.post, "/turns", json={"text": "hola"})
        assert agent.began.acquire(timeout=PATIENCE)
        full = ana.post("/turns", json={"text": "hola"})
        assert full.status_code == 429
        agent.may_go_on.set()
        assert [each.result().status_code for each in (*first, other)] == [200] * 4
        assert ana.post("/turns", json={"text": "hola"}).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", [None, "m1"])
def test_turn_ends_when_its_client_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: bool, name: str | None
) -> None:
    agent, noticed = HeldAgent(), threading.Event()
    owner, method = (StreamedTurn, "abandon") if stream else (awaited_turn, "_abandon")
    abandon = getattr(owner, method)

    def note(*arguments: Any) -> None:
        abandon(*arguments)
        noticed.set()

    monkeypatch.setattr(owner, method, note)
    with served_gateway(tmp_path / "talk.db", agent=agent) as server:
        body = {"text": "hola", "message_id": name, "conversation": "c", "stream": stream}
        content = json.dumps(body)
        head = (
            f"POST /turns HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {SECRETS['ana']}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        with connect(server, f"{head}{content}".encode()):
            assert agent.began.acquire(timeout=PATIENCE)
        if name is None:
            assert agent.ended.acquire(timeout=PATIENCE)
            assert agent.ends == ["stopped"]
            return
        # The server knows that the client has left, and the agent would have been stopped by now.
        assert noticed.wait(PATIENCE)
        looks = agent.looks
        eventually(lambda: agent.looks > looks + 5 or bool(agent.ends))
        agent.may_go_on.set()
        assert agent.ended.acquire(timeout=PATIENCE)
        assert agent.ends == ["answered"]
        with server.client("ana") as client:
            again = client.post("/turns", json={**body, "stream": False}).json()
        assert (again["text"], again["is_repeated"]) == ("well, hello", True)


def test_automatic_retries_store_the_message_once(tmp_path: Path) -> None:
    """OpenAI's clients send a request that failed again by themselves, without a key."""
    agent = FailingAgent(2)
    with served_gateway(tmp_path / "talk.db", agent=agent) as server:
        for count in range(3):
            with server.client("ana", headers={"x-stainless-retry-count": str(count)}) as client:
                answer = client.post(
                    "/v1/chat/completions",
                    json={"messages": [{"role": "user", "content": "hola"}]},
                    headers={"X-Conversation-Id": "kitchen"},
                )
            if count < 2:
                assert answer.status_code == 503
                assert answer.headers["x-should-retry"] == "false"
        assert answer.status_code == 200
        with server.client("ana") as client:
            (session,) = client.get("/sessions").json()["items"]
            items = client.get(f"/sessions/{session['id']}/transcript").json()["items"]
    assert [item["role"] for item in items] == ["user", "assistant"]


def test_saying_the_same_twice_is_two_messages(tmp_path: Path) -> None:
    with served_gateway(tmp_path / "talk.db") as server:
        client = server.openai("ana")
        for _ in range(2):
            client.chat.completions.create(
                model="parrot", messages=[{"role": "user", "content": "ok"}],
                extra_headers={"X-Conversation-Id": "kitchen"},
            )  # fmt: skip
        with server.client("ana") as reader:
            (session,) = reader.get("/sessions").json()["items"]
            items = reader.get(f"/sessions/{session['id']}/transcript").json()["items"]
    assert [item["role"] for item in items] == ["user", "assistant"] * 2


def test_openai_client_does_not_repeat_a_failed_turn(tmp_path: Path) -> None:
    agent = FailingAgent(9)
    with (
        served_gateway(tmp_path / "talk.db", agent=agent) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key=SECRETS["ana"], max_retries=2) as client,
        pytest.raises(openai.InternalServerError),
    ):
        client.chat.completions.create(
            model="parrot", messages=[{"role": "user", "content": "hola"}]
        )
    assert agent.failures == 8


def test_stopping_takes_no_longer_than_the_drain(tmp_path: Path) -> None:
    """A hung turn held the server for its own 30 seconds after the gateway had drained."""
    agent, pool = HeldAgent(), ThreadPoolExecutor(1)
    rules = GatewaySettings(drain_seconds=0.2)
    with (
        ExitStack() as sockets,
        served_gateway(
            tmp_path / "talk.db", agent=agent, rules=rules, drain_seconds=3600, read_seconds=3600
        ) as server,
        server.client("ana") as client,
    ):
        # A body that never arrives would hold the server for an hour; its socket outlives it.
        address = urlsplit(server.url)
        slow = sockets.enter_context(socket.create_connection((address.hostname, address.port)))
        head = f"POST /turns HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {SECRETS['bob']}\r\n"
        slow.sendall(f"{head}Content-Length: 100\r\n\r\n{{".encode())
        hung = pool.submit(client.post, "/turns", json={"text": "hola"})
        assert agent.began.acquire(timeout=PATIENCE)
        server.loop.call_soon_threadsafe(server.gateway.stop)
        answer = hung.result(PATIENCE)
        assert answer.status_code == 503
        assert answer.json()["error"]["message"] == "The gateway is stopping."
        assert client.get("/readyz").status_code == 503
        assert client.post("/turns", json={"text": "again"}).status_code == 503
    pool.shutdown()
