"""Pages: the web adapter keeps every promise of an adapter, and events can be replayed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from tertulia.platforms.web import WebAdapter
from tertulia.testing import AdapterContract
from tertulia.testing.adapter_contract import AdapterFixture, SendFailure
from tests.http.served_gateway import (
    PATIENCE,
    SECRETS,
    ServedGateway,
    served_adapter,
    served_gateway,
)


class WebScene(AdapterFixture):
    chat = "chat-1"
    account = "ana"
    mishaps = ("unavailable",)

    def __init__(self, url: str, adapter: WebAdapter) -> None:
        self.adapter = adapter
        self._client = httpx2.AsyncClient(
            base_url=url, headers={"Authorization": f"Bearer {SECRETS['ana']}"}, timeout=PATIENCE
        )
        self._texts: list[str] = []
        self._came = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None

    async def open(self) -> None:
        ready = asyncio.Event()
        self._reading = asyncio.create_task(self._read(ready))
        await ready.wait()

    async def _read(self, ready: asyncio.Event) -> None:
        async with self._client.stream("GET", f"/web/{self.chat}/events", timeout=None) as answer:
            async for line in answer.aiter_lines():
                ready.set()
                if line.startswith("data: ") and "delivery" in (data := json.loads(line[6:])):
                    self._texts.append(data["text"])
                    self._came.set()

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        await self._client.aclose()

    async def write(self, text: str, message_id: str) -> bool:
        body = {"text": text, "message_id": message_id}
        answer = await self._client.post(f"/web/{self.chat}/messages", json=body)
        return answer.status_code == 202

    async def arrived(self, count: int) -> list[str]:
        while len(self._texts) < count:
            await self._came.wait()
            self._came.clear()
        return self._texts

    def spoil(self, mishap: SendFailure) -> None:
        assert isinstance(self.adapter, WebAdapter)
        self.adapter._streams.clear()

    def tries(self) -> int:
        return 0


class TestWeb(AdapterContract):
    @asynccontextmanager
    async def scene(self) -> AsyncIterator[AdapterFixture]:
        adapter = WebAdapter()
        async with served_adapter(adapter) as url:
            scene = WebScene(url, adapter)
            await scene.open()
            try:
                yield scene
            finally:
                await scene.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServedGateway]:
    with served_gateway(tmp_path / "talk.db", adapters=[WebAdapter()]) as gateway:
        yield gateway


def test_answer_to_accepted_message_is_an_event(server: ServedGateway) -> None:
    with server.client("ana") as client, client.stream("GET", "/web/den/events") as stream:
        lines = stream.iter_lines()
        assert next(lines).startswith(":")
        body = {"text": "hola", "message_id": "m1"}
        with server.client("ana") as other:
            response = other.post("/web/den/messages", json=body)
            assert response.status_code == 202
            assert response.json() == {"message_id": "m1"}
            assert other.post("/web/den/messages", json=body).status_code == 202
        names, data, event_id = [], {}, ""
        for line in lines:
            name, _, value = line.partition(": ")
            if name == "event":
                names.append(value)
            elif name == "id":
                event_id = value
            elif name == "data" and names[-1] == "message":
                data = json.loads(value)
                break
    assert names[0] == "began"
    assert "delta" in names
    assert data["text"].startswith("You said: hola")
    session_id, _, number = event_id.rpartition("/")
    assert number == "2"
    with server.client("root") as root:
        assert root.get(f"/sessions/{session_id}").json()["key"].endswith("web:ana:dm:den")
    with server.client("ana") as client:
        listed = client.get("/sessions", params={"platform": "web"}).json()["items"]
    assert [item["id"] for item in listed] == [session_id]


def test_reconnecting_page_gets_missed_answers_once(server: ServedGateway) -> None:
    with server.client("ana") as client:
        client.post("/web/den/messages", json={"text": "hola", "message_id": "m1"})
        with server.client("root") as root:
            while not (sessions := root.get("/sessions").json()["items"]):
                pass
            path = f"/sessions/{sessions[0]['id']}/transcript"
            while len(root.get(path).json()["items"]) < 2:
                pass
        headers = {"Last-Event-ID": f"{sessions[0]['id']}/1"}
        messages = []
        with client.stream("GET", "/web/den/events", headers=headers) as stream:
            for line in stream.iter_lines():
                if line.startswith("data: "):
                    messages.append(json.loads(line[6:]))
                    if len(messages) == 1:
                        body = {"text": "/whoami", "message_id": "m2"}
                        client.post("/web/den/messages", json=body)
                    if "delivery" in messages[-1]:
                        break
    assert messages[0]["text"].startswith("You said: hola")
    assert not messages[-1]["text"].startswith("You said: hola")


def test_event_id_of_other_person_replays_nothing(tmp_path: Path) -> None:
    with served_gateway(
        tmp_path / "talk.db", adapters=[WebAdapter()], stream_seconds=0.5
    ) as server:
        with server.client("ana") as client:
            body = {"text": "the password is swordfish", "conversation": "anas"}
            session_id = client.post("/turns", json=body).json()["session_id"]
        with server.client("bob", headers={"Last-Event-ID": f"{session_id}/0"}) as client:
            response = client.get("/web/anas/events")
    assert response.status_code == 200
    assert "swordfish" not in response.text
