"""Turns over HTTP: in order, once, to their end; and what is counted of them."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from tertulia import Source
from tertulia.agents import Delta, OpenAIAgent, ParrotAgent, Step
from tertulia.agents.base import Event, Request
from tertulia.errors import AgentFailed, AgentStopped
from tertulia.platforms.web import WebAdapter
from tests.http.node import node
from tests.http.scene import SECRETS, ServedGateway, served_gateway
from tests.http.test_openai import CALL, TOOL
from tests.servers.models import Call, ModelServer, refuses
from tests.servers.models import openai as wire


class HeldAgent(ParrotAgent):
    """Begins, and goes on when it is let; it remembers how its runs ended."""

    def __init__(self) -> None:
        super().__init__()
        self.began = threading.Semaphore(0)
        self.may_go_on = threading.Event()
        self.ends: list[str] = []
        self.ended = threading.Semaphore(0)

    async def run(self, request: Request) -> AsyncGenerator[Event, None]:
        yield Delta("well, ")
        self.began.release()
        try:
            while not self.may_go_on.is_set():
                if request.stop.is_set():
                    self.ends.append("stopped")
                    raise AgentStopped("Stopped.", partial="well, ")
                await asyncio.sleep(0.01)
            yield Delta("hello")
            self.ends.append("answered")
            yield Step("well, hello")
        finally:
            self.ended.release()


class BrokenAgent(ParrotAgent):
    async def run(self, request: Request) -> AsyncGenerator[Event, None]:
        if request.text == "late":
            yield Delta("I beg")
        raise AgentFailed("https://secret.example said: key sk-123 is wrong")


@pytest.fixture
def here(tmp_path: Path) -> Iterator[ServedGateway]:
    with served_gateway(tmp_path / "talk.db", adapters=[WebAdapter()]) as found:
        yield found


def events_of(text: str) -> list[tuple[str, Any]]:
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if line[:1] != ":")
        if "data" in fields:
            found.append((fields.get("event", ""), json.loads(fields["data"])))
    return found


class TestTurns:
    def test_an_answer_and_the_next_one(self, here: ServedGateway) -> None:
        with here.client("eve") as client:
            first = client.post("/turns", json={"text": "hola"}).json()
            assert first["text"].startswith("You said: hola")
            named = {"text": "history", "conversation": first["conversation"]}
            again = client.post("/turns", json=named).json()
        assert "shown 3 messages" in again["text"]
        assert again["session_id"] == first["session_id"]

    def test_events(self, here: ServedGateway) -> None:
        with here.client("ana") as client:
            found = client.post("/turns", json={"text": "hola", "stream": True})
        assert found.headers["content-type"].startswith("text/event-stream")
        told = events_of(found.text)
        shown = "".join(data["text"] for name, data in told if name == "delta")
        assert told[-1][0] == "answer"
        assert told[-1][1]["text"] == shown

    @pytest.mark.parametrize("streams", [True, False])
    def test_a_repeated_message_is_answered_the_same(
        self, here: ServedGateway, streams: bool
    ) -> None:
        body = {"text": "hola", "conversation": "c", "message_id": "m1", "stream": streams}
        with here.client("ana") as client:
            first, again = (client.post("/turns", json=body) for _ in range(2))
        if streams:
            first_text, again_text = (events_of(one.text)[-1][1] for one in (first, again))
        else:
            first_text, again_text = first.json(), again.json()
        assert not first_text["is_repeated"]
        assert again_text["is_repeated"]
        assert again_text["text"] == first_text["text"]

    def test_half_a_surrogate_pair_can_be_read(self, here: ServedGateway) -> None:
        with here.store() as store:
            session = store.sessions.open(Source("telegram", "1", user_id="1"))
            store.transcript(session.id).append({"role": "user", "content": "half \ud83d"})
        with here.client() as client:
            for what in ("transcript", "history"):
                found = client.get(f"/sessions/{session.id}/{what}")
                assert found.status_code == 200
                assert "half" in found.text
            assert client.get("/search", params={"q": "half"}).status_code == 200

    def test_no_row_waits_for_a_delivery(self, here: ServedGateway) -> None:
        with here.client() as client:
            client.post("/turns", json={"text": "hola"})
            assert client.get("/deliveries").json()["items"] == []
            assert client.get("/inbox").json()["items"] == []

    def test_what_a_provider_said_is_not_told(self, tmp_path: Path) -> None:
        with (
            served_gateway(tmp_path / "talk.db", agent=BrokenAgent()) as here,
            here.client() as client,
        ):
            found = client.post("/turns", json={"text": "hola"})
            assert found.status_code == 502
            assert found.json()["error"]["code"] == "agent_failed"
            late = client.post("/turns", json={"text": "late", "stream": True})
            told = events_of(late.text)
            assert [name for name, _ in told] == ["delta", "error"]
            stream = here.openai().chat.completions.create(
                model="x", messages=[{"role": "user", "content": "late"}], stream=True
            )
            with pytest.raises(openai.APIError):
                list(stream)
        for text in (found.text, late.text):
            assert "sk-123" not in text
            assert "secret.example" not in text


class TestOrder:
    def test_two_clients_take_turns(self, tmp_path: Path) -> None:
        agent = HeldAgent()
        with (
            served_gateway(tmp_path / "talk.db", agent=agent) as here,
            ThreadPoolExecutor(2) as pool,
        ):
            body = {"text": "hola", "conversation": "shared"}

            def ask() -> httpx2.Response:
                with here.client("ana") as client:
                    return client.post("/turns", json=body)

            both = [pool.submit(ask) for _ in range(2)]
            assert agent.began.acquire(timeout=60)
            agent.may_go_on.set()
            answers = [one.result() for one in both]
            assert [one.status_code for one in answers] == [200, 200]
            with here.client("root") as root:
                session = answers[0].json()["session_id"]
                entries = root.get(f"/sessions/{session}/transcript").json()["items"]
        roles = [entry["role"] for entry in entries]
        assert roles == ["user", "assistant", "user", "assistant"]

    def test_who_waits_too_long_is_told_so(self, tmp_path: Path) -> None:
        agent = HeldAgent()
        with (
            served_gateway(tmp_path / "talk.db", agent=agent, wait_seconds=0.2) as here,
            ThreadPoolExecutor(1) as pool,
            here.client("ana") as client,
        ):
            body = {"text": "hola", "conversation": "shared"}
            first = pool.submit(client.post, "/turns", json=body)
            assert agent.began.acquire(timeout=60)
            with pytest.raises(openai.ConflictError) as caught:
                here.openai("ana").chat.completions.create(
                    model="x", messages=[{"role": "user", "content": "and I"}], user="shared"
                )
            assert caught.value.code == "session_busy"
            assert caught.value.response.headers["retry-after"] == "1"
            agent.may_go_on.set()
            assert first.result().status_code == 200


class TestLeaving:
    def leave(self, here: ServedGateway, agent: HeldAgent, headers: dict[str, str]) -> None:
        body = {"text": "hola", "conversation": "c", "stream": True}
        with (
            here.client("ana") as client,
            client.stream("POST", "/turns", json=body, headers=headers) as answer,
        ):
            next(answer.iter_lines())
            assert agent.began.acquire(timeout=60)

    def test_who_leaves_stops_the_answer(self, tmp_path: Path) -> None:
        agent = HeldAgent()
        with served_gateway(tmp_path / "talk.db", agent=agent) as here:
            self.leave(here, agent, {})
            assert agent.ended.acquire(timeout=60)
            assert agent.ends == ["stopped"]

    def test_who_can_come_back_finds_it_finished(self, tmp_path: Path) -> None:
        agent = HeldAgent()
        with served_gateway(tmp_path / "talk.db", agent=agent) as here:
            self.leave(here, agent, {"Idempotency-Key": "k1"})
            agent.may_go_on.set()
            assert agent.ended.acquire(timeout=60)
            with here.client("ana") as client:
                again = client.post(
                    "/turns",
                    json={"text": "hola", "conversation": "c"},
                    headers={"Idempotency-Key": "k1"},
                ).json()
        assert agent.ends == ["answered"]
        assert (again["text"], again["is_repeated"]) == ("well, hello", True)


class TestTools:
    """A model that calls the client's tools: the turn is one, over two requests."""

    def test_results_come_back_in_the_same_turn(self, tmp_path: Path) -> None:
        with ModelServer() as server:
            server.script(
                wire.says("", Call("call_a", "weather", '{"city": "Cádiz"}'),
                          Call("call_b", "weather", '{"city": "Graz"}')),
                refuses(401),
                wire.says("Sunny in both."),
            )  # fmt: skip
            agent = OpenAIAgent("test-1", base_url=server.url, api_key="sk-0123456789")
            with served_gateway(tmp_path / "talk.db", agent=agent) as here:
                client = here.openai()
                asked: Any = {
                    "model": "x", "tools": [TOOL], "extra_headers": {"X-Conversation-Id": "c"},
                }  # fmt: skip
                messages: Any = [{"role": "user", "content": "Weather?"}]
                first = client.chat.completions.create(messages=messages, **asked)
                message = first.choices[0].message
                assert message.tool_calls is not None
                assert [one.id for one in message.tool_calls] == ["call_a", "call_b"]
                messages += [message.model_dump(exclude_none=True)]
                half = [*messages, {"role": "tool", "tool_call_id": "call_a", "content": "sun"}]
                with pytest.raises(openai.BadRequestError, match="No call waits"):
                    client.chat.completions.create(messages=half, **asked)
                whole = [*half, {"role": "tool", "tool_call_id": "call_b", "content": "sun too"}]
                # The model fails after the results were stored; then the same request succeeds.
                with pytest.raises(openai.InternalServerError):
                    client.chat.completions.create(messages=whole, **asked)
                last = client.chat.completions.create(messages=whole, **asked)
                again = client.chat.completions.create(messages=whole, **asked)
                with here.client("root") as root:
                    (session,) = root.get("/sessions").json()["items"]
                    entries = root.get(f"/sessions/{session['id']}/transcript").json()["items"]
        assert last.choices[0].message.content == "Sunny in both."
        assert again.choices[0].message.content == "Sunny in both."
        assert [one["role"] for one in entries] == [
            "user", "assistant", "tool", "tool", "assistant",
        ]  # fmt: skip
        assert [one["body"]["content"] for one in entries[2:4]] == ["sun", "sun too"]
        assert {one["turn"] for one in entries} == {1}
        sent = server.seen[-1].body["messages"]
        assert [one["role"] for one in sent[-4:]] == ["user", "assistant", "tool", "tool"]
        assert sent[-1]["content"] == "sun too"
        assert server.seen[-1].body["tools"][0]["function"]["name"] == "weather"

    def test_something_else_is_said_instead(self, here: ServedGateway) -> None:
        client = here.openai()
        headers = {"X-Conversation-Id": "c"}
        offered: list[tuple[str, Any]] = [(CALL, {"tools": [TOOL]}), ("history", {})]
        for text, options in offered:
            found = client.chat.completions.create(
                model="x",
                messages=[{"role": "user", "content": text}],
                extra_headers=headers,
                **options,
            )
        assert "interrupted" in (found.choices[0].message.content or "").lower()
        with here.client() as raw:
            counted = raw.get("/metrics").text
        assert 'tertulia_turns_total{outcome="handed_over",platform="api"} 1.0' in counted


class TestWeb:
    def test_a_message_is_accepted_and_its_answer_comes_as_an_event(
        self, here: ServedGateway
    ) -> None:
        with here.client("ana") as client, client.stream("GET", "/web/den/events") as stream:
            lines = stream.iter_lines()
            assert next(lines).startswith(":")
            body = {"text": "hola", "message_id": "m1"}
            with here.client("ana") as other:
                found = other.post("/web/den/messages", json=body)
                assert found.status_code == 202
                assert found.json() == {"message_id": "m1"}
                assert other.post("/web/den/messages", json=body).status_code == 202
            names, data, place = [], {}, ""
            for line in lines:
                name, _, value = line.partition(": ")
                if name == "event":
                    names.append(value)
                elif name == "id":
                    place = value
                elif name == "data" and names[-1] == "message":
                    data = json.loads(value)
                    break
        assert names[0] == "began"
        assert "delta" in names
        assert data["text"].startswith("You said: hola")
        session_id, _, number = place.rpartition("/")
        assert number == "2"
        with here.client("root") as root:
            assert root.get(f"/sessions/{session_id}").json()["key"].endswith("web:ana:dm:den")
        with here.client("ana") as client:
            listed = client.get("/sessions", params={"platform": "web"}).json()["items"]
        assert [one["id"] for one in listed] == [session_id]

    def test_who_comes_back_is_given_what_was_missed_once(self, here: ServedGateway) -> None:
        with here.client("ana") as client:
            client.post("/web/den/messages", json={"text": "hola", "message_id": "m1"})
            with here.client("root") as root:
                while not (found := root.get("/sessions").json()["items"]):
                    pass
                at = f"/sessions/{found[0]['id']}/transcript"
                while len(root.get(at).json()["items"]) < 2:
                    pass
            headers = {"Last-Event-ID": f"{found[0]['id']}/1"}
            messages = []
            with client.stream("GET", "/web/den/events", headers=headers) as stream:
                for line in stream.iter_lines():
                    if line.startswith("data: "):
                        messages.append(json.loads(line[6:]))
                        if len(messages) == 1:
                            said = {"text": "/whoami", "message_id": "m2"}
                            client.post("/web/den/messages", json=said)
                        if "delivery" in messages[-1]:
                            break
        assert messages[0]["text"].startswith("You said: hola")
        assert not messages[-1]["text"].startswith("You said: hola")

    def test_a_server_that_stops_lets_pages_go(self, tmp_path: Path) -> None:
        adapters = [WebAdapter()]
        # A server that waited for the page would not end within the patience of `house`.
        with (
            ThreadPoolExecutor(1) as pool,
            served_gateway(tmp_path / "talk.db", adapters=adapters, drain_seconds=3600) as here,
        ):
            connected = threading.Event()

            def read() -> None:
                with here.client("ana") as client, client.stream("GET", "/web/c/events") as stream:
                    for _ in stream.iter_lines():
                        connected.set()

            reading = pool.submit(read)
            assert connected.wait(60)
        reading.result(60)


class TestCounting:
    def test_health_and_metrics(self, here: ServedGateway) -> None:
        with here.client() as client:
            assert client.get("/readyz").json() == {"status": "ok"}
            client.post("/turns", json={"text": "hola"})
            client.post("/web/den/messages", json={"text": "hola"})
            found = client.get("/metrics").text
        assert 'tertulia_turns_total{outcome="answered",platform="api"} 1.0' in found
        assert 'tertulia_turn_seconds_count{platform="api"} 1.0' in found
        assert 'tertulia_tokens_total{kind="output",platform="api"}' in found
        assert 'tertulia_deliveries{state="dead"} 0.0' in found
        assert 'tertulia_inbox{state="waiting"}' in found
        with here.client("ana") as client:
            assert client.get("/metrics").status_code == 403

    def test_a_delivery_is_settled_by_hand(self, here: ServedGateway) -> None:
        with here.store() as store:
            store.outbox.put("hola", "telegram:42", delivery="d1")
            (parcel,) = store.outbox.claim()
            store.outbox.failed(parcel, "nobody knows", outcome="unknown")
        with here.client() as client:
            (found,) = client.get("/deliveries", params={"state": "unknown"}).json()["items"]
            at = f"/deliveries/{found['id']}/settle"
            assert client.post(at, json={"outcome": "retry"}).json()["state"] == "waiting"
            assert client.post(at, json={"outcome": "sent"}).status_code == 400
            assert client.post("/deliveries/99/settle", json={"outcome": "sent"}).status_code == 404

    def test_a_stranger_is_let_in(self, here: ServedGateway) -> None:
        with here.store() as store:
            code = store.people.ask(Source("telegram", "9", user_id="9"))
        with here.client() as client:
            (waiting,) = client.get("/pairings").json()["items"]
            assert waiting["person"] == "telegram:9"
            person = client.post("/pairings/approve", json={"code": code}).json()
            assert person["role"] == "member"
            raised = client.put("/people/telegram:9/role", json={"role": "owner"}).json()
            assert raised["role"] == "owner"
            assert "telegram:9" in client.get("/people").text


def test_a_killed_server_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "talk.db"
    headers = {"Authorization": f"Bearer {SECRETS['ana']}", "Idempotency-Key": "k2"}
    hang = {"text": "hang", "conversation": "c", "stream": True}
    with (
        node(path, hangs=True) as first,
        httpx2.Client(base_url=first.url, headers=headers, timeout=60) as client,
    ):
        said = {"text": "I am Ana", "conversation": "c"}
        client.post("/turns", json=said, headers={"Idempotency-Key": "k1"})
        with client.stream("POST", "/turns", json=hang) as answer:
            assert next(answer.iter_lines()) == "event: delta"
            first.kill()
    with node(path) as second, httpx2.Client(base_url=second.url, headers=headers) as client:
        # The lease of the killed one runs out first.
        again = client.post("/turns", json={**hang, "stream": False}, timeout=120)
        assert again.json()["text"].startswith("You said: hang")
        shown = client.post(
            "/turns",
            json={"text": "history", "conversation": "c"},
            headers={"Idempotency-Key": "k3"},
            timeout=60,
        ).json()["text"]
    assert "I am Ana" in shown
    assert shown.count("user: hang") == 1
