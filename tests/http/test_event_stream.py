"""Event streams: their format, and what a client that disconnects does to a turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from tertulia.http.event_stream import EventStream, format_event
from tests.http.agents import HeldAgent
from tests.http.served_gateway import ServedGateway, served_gateway


def test_event_is_one_data_line() -> None:
    event = format_event({"text": "a\nb"}, name="message", id="s/1")
    assert event == b'id: s/1\nevent: message\ndata: {"text":"a\\nb"}\n\n'


def run_stream(*, seconds: float, disconnects: bool) -> tuple[list[dict[str, Any]], bool]:
    """Send a stream that never ends by itself; return what was sent, and whether it was closed."""
    sent: list[dict[str, Any]] = []
    is_closed = False

    async def events() -> AsyncGenerator[bytes, None]:
        nonlocal is_closed
        try:
            yield format_event(1)
            await asyncio.Event().wait()
        finally:
            is_closed = True

    async def run() -> None:
        has_body = asyncio.Event()

        async def send(message: Any) -> None:
            sent.append(message)
            if message["type"] == "http.response.body":
                has_body.set()

        async def receive() -> dict[str, Any]:
            await (has_body if disconnects else asyncio.Event()).wait()
            return {"type": "http.disconnect"}

        await EventStream(events(), seconds=seconds)({}, receive, send)

    asyncio.run(run())
    return sent, is_closed


def test_stream_ends_when_its_time_is_up() -> None:
    sent, is_closed = run_stream(seconds=0.2, disconnects=False)
    assert sent[1]["body"] == b"data: 1\n\n"
    assert sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
    assert is_closed


def test_stream_ends_when_client_disconnects() -> None:
    sent, is_closed = run_stream(seconds=60, disconnects=True)
    assert sent[-1]["body"] == b"data: 1\n\n"
    assert is_closed


class TestDisconnect:
    def leave(self, server: ServedGateway, agent: HeldAgent, headers: dict[str, str]) -> None:
        body = {"text": "hola", "conversation": "c", "stream": True}
        with (
            server.client("ana") as client,
            client.stream("POST", "/turns", json=body, headers=headers) as answer,
        ):
            next(answer.iter_lines())
            assert agent.began.acquire(timeout=60)

    def test_disconnect_stops_an_unnamed_turn(self, tmp_path: Path) -> None:
        agent = HeldAgent()
        with served_gateway(tmp_path / "talk.db", agent=agent) as server:
            self.leave(server, agent, {})
            assert agent.ended.acquire(timeout=60)
            assert agent.ends == ["stopped"]

    def test_disconnect_does_not_stop_a_named_turn(self, tmp_path: Path) -> None:
        agent = HeldAgent()
        with served_gateway(tmp_path / "talk.db", agent=agent) as server:
            self.leave(server, agent, {"Idempotency-Key": "k1"})
            agent.may_go_on.set()
            assert agent.ended.acquire(timeout=60)
            with server.client("ana") as client:
                again = client.post(
                    "/turns",
                    json={"text": "hola", "conversation": "c"},
                    headers={"Idempotency-Key": "k1"},
                ).json()
        assert agent.ends == ["answered"]
        assert (again["text"], again["is_repeated"]) == ("well, hello", True)
