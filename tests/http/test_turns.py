"""Turns over HTTP: in order, answered once, and finished after a crash."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import openai
import pytest

from tests.http.agents import HeldAgent
from tests.http.served_gateway import SECRETS, ServedGateway, parse_events, served_gateway
from tests.http.server_process import server_process


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServedGateway]:
    with served_gateway(tmp_path / "talk.db") as gateway:
        yield gateway


class TestTurns:
    def test_an_answer_and_the_next_one(self, server: ServedGateway) -> None:
        with server.client("eve") as client:
            first = client.post("/turns", json={"text": "hola"}).json()
            assert first["text"].startswith("You said: hola")
            named = {"text": "history", "conversation": first["conversation"]}
            again = client.post("/turns", json=named).json()
        assert "shown 3 messages" in again["text"]
        assert again["session_id"] == first["session_id"]

    def test_streamed_deltas_equal_the_answer(self, server: ServedGateway) -> None:
        with server.client("ana") as client:
            response = client.post("/turns", json={"text": "hola", "stream": True})
        assert response.headers["content-type"].startswith("text/event-stream")
        events = parse_events(response.text)
        text = "".join(data["text"] for name, data in events if name == "delta")
        assert events[-1][0] == "answer"
        assert events[-1][1]["text"] == text

    @pytest.mark.parametrize("streams", [True, False])
    def test_repeated_message_gets_the_stored_answer(
        self, server: ServedGateway, streams: bool
    ) -> None:
        body = {"text": "hola", "conversation": "c", "message_id": "m1", "stream": streams}
        with server.client("ana") as client:
            first, again = (client.post("/turns", json=body) for _ in range(2))
        if streams:
            first_text, again_text = (
                parse_events(response.text)[-1][1] for response in (first, again)
            )
        else:
            first_text, again_text = first.json(), again.json()
        assert not first_text["is_repeated"]
        assert again_text["is_repeated"]
        assert again_text["text"] == first_text["text"]

    def test_turn_leaves_no_inbox_item_or_delivery(self, server: ServedGateway) -> None:
        with server.client() as client:
            client.post("/turns", json={"text": "hola"})
            assert client.get("/deliveries").json()["items"] == []
            assert client.get("/inbox").json()["items"] == []


class TestOrder:
    def test_two_clients_of_one_conversation_do_not_interleave(self, tmp_path: Path) -> None:
        agent = HeldAgent()
        with (
            served_gateway(tmp_path / "talk.db", agent=agent) as server,
            ThreadPoolExecutor(2) as pool,
        ):
            body = {"text": "hola", "conversation": "shared"}

            def ask() -> httpx2.Response:
                with server.client("ana") as client:
                    return client.post("/turns", json=body)

            both = [pool.submit(ask) for _ in range(2)]
            assert agent.began.acquire(timeout=60)
            agent.may_go_on.set()
            answers = [future.result() for future in both]
            assert [answer.status_code for answer in answers] == [200, 200]
            with server.client("root") as root:
                session = answers[0].json()["session_id"]
                entries = root.get(f"/sessions/{session}/transcript").json()["items"]
        roles = [entry["role"] for entry in entries]
        assert roles == ["user", "assistant", "user", "assistant"]

    def test_waiting_too_long_is_a_conflict(self, tmp_path: Path) -> None:
        agent = HeldAgent()
        with (
            served_gateway(tmp_path / "talk.db", agent=agent, wait_seconds=0.2) as server,
            ThreadPoolExecutor(1) as pool,
            server.client("ana") as client,
        ):
            body = {"text": "hola", "conversation": "shared"}
            first = pool.submit(client.post, "/turns", json=body)
            assert agent.began.acquire(timeout=60)
            with pytest.raises(openai.ConflictError) as caught:
                server.openai("ana").chat.completions.create(
                    model="parrot", messages=[{"role": "user", "content": "and I"}],
                    extra_headers={"X-Conversation-Id": "shared"},
                )  # fmt: skip
            assert caught.value.code == "session_busy"
            assert caught.value.response.headers["retry-after"] == "1"
            agent.may_go_on.set()
            assert first.result().status_code == 200


@pytest.mark.check
def test_killed_server_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "talk.db"
    headers = {"Authorization": f"Bearer {SECRETS['ana']}", "Idempotency-Key": "k2"}
    hang = {"text": "hang", "conversation": "c", "stream": True}
    with (
        server_process(path, hangs=True) as first,
        httpx2.Client(base_url=first.url, headers=headers, timeout=60) as client,
    ):
        body = {"text": "I am Ana", "conversation": "c"}
        client.post("/turns", json=body, headers={"Idempotency-Key": "k1"})
        with client.stream("POST", "/turns", json=hang) as answer:
            assert next(answer.iter_lines()) == "event: delta"
            first.kill()
    with (
        server_process(path) as second,
        httpx2.Client(base_url=second.url, headers=headers) as client,
    ):
        # This waits until the lease of the killed process has expired.
        again = client.post("/turns", json={**hang, "stream": False}, timeout=120)
        assert again.json()["text"].startswith("You said: hang")
        text = client.post(
            "/turns",
            json={"text": "history", "conversation": "c"},
            headers={"Idempotency-Key": "k3"},
            timeout=60,
        ).json()["text"]
    assert "I am Ana" in text
    assert len(re.findall(r"user: \[Message Time: [^]]*\] hang$", text, re.MULTILINE)) == 1
