"""Pages: the web adapter keeps every promise of an adapter, and events can be replayed."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from tertulia.core.source import Source
from tertulia.gateway.settings import GatewaySettings
from tertulia.http import stream_ticket, web
from tertulia.platforms.settings import PlatformSettings
from tertulia.platforms.web import WebAdapter
from tertulia.records.queues.outbox import Delivery
from tertulia.testing import AdapterContract
from tertulia.testing.adapter_contract import AdapterFixture, SendFailure
from tests.http.served_gateway import (
    PATIENCE,
    SECRETS,
    ServedGateway,
    eventually,
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
    assert event_id == data["delivery"]
    with server.client("ana") as client:
        (listed,) = client.get("/sessions", params={"platform": "web"}).json()["items"]
    with server.client("root") as root:
        assert root.get(f"/sessions/{listed['id']}").json()["key"].endswith("web:ana:dm:den")


class Page:
    """An open page: its messages, by delivery."""

    def __init__(
        self, client: httpx2.Client, chat: str = "den", last: str = "", visitor: str = ""
    ) -> None:
        headers = {"Last-Event-ID": last} if last else {}
        headers |= {"X-Visitor-Id": visitor} if visitor else {}
        self._opening = client.stream("GET", f"/web/{chat}/events", headers=headers)

    def __enter__(self) -> Page:
        self._response = self._opening.__enter__()
        self._lines = self._response.iter_lines()
        assert next(self._lines).startswith(":")
        return self

    def __exit__(self, *problem: object) -> None:
        self._response.close()
        self._lines.close()  # type: ignore[attr-defined]
        self._opening.__exit__(None, None, None)

    def next_message(self) -> dict[str, Any]:
        self.events_until_message()
        return self.last_message

    def events_until_message(self) -> list[str]:
        """Read up to the next message; return the names of the events before it."""
        names: list[str] = []
        for line in self._lines:
            name, _, value = line.partition(": ")
            if name == "event":
                names.append(value)
            elif name == "data" and names[-1] == "message":
                self.last_message: dict[str, Any] = json.loads(value)
                return names[:-1]
        raise AssertionError("the stream ended")


def say(client: httpx2.Client, text: str, chat: str = "den", **headers: str) -> None:
    response = client.post(f"/web/{chat}/messages", json={"text": text}, headers=headers)
    assert response.status_code == 202


def delivery_states(server: ServedGateway) -> list[tuple[str, str]]:
    with server.client("root") as root:
        items = root.get("/deliveries").json()["items"]
    return [(item["body"]["text"], item["state"]) for item in items]


def test_reconnecting_page_gets_missed_deliveries_once(server: ServedGateway) -> None:
    with server.client("ana") as client:
        with Page(client) as page:
            say(client, "/whoami")
            first = page.next_message()
            say(client, "/queue")
            second = page.next_message()
        with Page(client, last=quote(first["delivery"], safe="")) as page:
            assert page.next_message() == second  # commands are in no transcript
            say(client, "/help")
            assert page.next_message()["delivery"] not in (first["delivery"], second["delivery"])


def test_equal_texts_are_different_deliveries(server: ServedGateway) -> None:
    """A replayed text swallowed the next equal one, which then counted as sent."""
    with server.client("ana") as client:
        with Page(client) as page:
            say(client, "/queue")
            first = page.next_message()
            say(client, "/queue")
            second = page.next_message()
        with Page(client, last=quote(first["delivery"], safe="")) as page:
            assert page.next_message() == second
            say(client, "/queue")
            third = page.next_message()
    assert first["text"] == second["text"] == third["text"]
    assert len({first["delivery"], second["delivery"], third["delivery"]}) == 3


def test_deliveries_wait_until_a_page_opens(tmp_path: Path) -> None:
    """They were dead after a few tries, and a page that opened did not wake them."""
    rules = GatewaySettings(
        platforms={"web": PlatformSettings(admission="everyone")}, sends=1, drain_seconds=2
    )
    with (
        served_gateway(tmp_path / "talk.db", adapters=[WebAdapter()], rules=rules) as server,
        server.client("ana") as client,
    ):
        say(client, "hola")
        say(client, "/whoami")

        def is_tried() -> bool:
            with server.store() as store:
                deliveries = store.outbox.find().items
            return len(deliveries) == 2 and any(each.attempts for each in deliveries)

        eventually(is_tried)
        assert {state for _, state in delivery_states(server)} <= {"waiting", "sending"}
        with Page(client) as page:
            texts = [page.next_message()["text"], page.next_message()["text"]]
        assert any(text.startswith("You said: hola") for text in texts)
        eventually(lambda: {state for _, state in delivery_states(server)} == {"sent"})


def test_visitors_of_one_guest_token_are_apart(server: ServedGateway) -> None:
    """Visitor 2 found the words of visitor 1 by /search, and could join the chat by its name."""
    with server.client("eve") as client:
        first, second = (client.post("/web/visitors").json()["visitor"] for _ in range(2))
        with Page(client, visitor=first) as page:
            say(client, "the password is hunter2", **{"X-Visitor-Id": first})
            assert "hunter2" in page.next_message()["text"]
        with Page(client, visitor=second) as page:
            say(client, "/search hunter2", **{"X-Visitor-Id": second})
            assert "hunter2 " not in page.next_message()["text"].replace("“hunter2”", "")
            say(client, "history", **{"X-Visitor-Id": second})
            assert "password" not in page.next_message()["text"]
    with server.store() as store:
        keys = {session.key for session in store.sessions.find().items}
    assert len(keys) == 2


@pytest.mark.parametrize("visitor", ["", "1", "0" * 48, "é" * 48])
def test_visitor_ids_are_made_by_the_server(server: ServedGateway, visitor: str) -> None:
    headers = {b"X-Visitor-Id": visitor.encode()} if visitor else {}
    with server.client("eve") as client:
        posted = client.post("/web/den/messages", json={"text": "hola"}, headers=headers)
        assert posted.status_code == 400
        assert posted.json()["error"]["param"] == "X-Visitor-Id"
        with client.stream("GET", "/web/den/events", headers=headers) as opened:
            assert opened.status_code == 400


def test_visitor_id_belongs_to_its_token(server: ServedGateway) -> None:
    with server.client("ana") as ana, server.client("eve") as eve:
        visitor = ana.post("/web/visitors").json()["visitor"]
        headers = {"X-Visitor-Id": visitor}
        answer = eve.post("/web/den/messages", json={"text": "hola"}, headers=headers)
    assert answer.status_code == 400


def open_ticket(server: ServedGateway, name: str, **headers: str) -> str:
    """Return the address of a stream for the chat "den" of a person."""
    with server.client(name) as client:
        made = client.post("/web/den/tickets", headers=headers)
        assert made.status_code == 201, made.text
        return str(made.json()["address"])


def test_a_ticket_opens_the_stream_of_its_visitor_alone(server: ServedGateway) -> None:
    with server.client("eve") as eve:
        visitor = {"X-Visitor-Id": eve.post("/web/visitors").json()["visitor"]}
        assert eve.post("/web/den/tickets").status_code == 400  # whose?
        address = open_ticket(server, "eve", **visitor)
        with server.client(None) as nobody, nobody.stream("GET", address) as stream:
            lines = stream.iter_lines()
            assert next(lines).startswith(":")
            say(eve, "hola", **visitor)
            (text,) = [line for line in takewhile_message(lines) if line.startswith("data: ")]
            assert "You said: hola" in text
        with server.client(None) as nobody:
            assert nobody.post("/web/den/messages", json={"text": "x"}).status_code == 401
            data, _, signature = address.rpartition("/")[2].partition(".")
            for ticket in ("x", f"{data}.", f"{data}.{'0' * 32}", f"{data}A.{signature}", "é.é"):
                assert status_of_stream(nobody, f"/web/streams/{ticket}") == 401, ticket


def status_of_stream(client: httpx2.Client, address: str) -> int:
    """Return the status of a stream, without reading it: one that opens has no end."""
    with client.stream("GET", address) as stream:
        return stream.status_code


def takewhile_message(lines: Iterator[str]) -> Iterator[str]:
    """Yield the lines of the first event `message`."""
    for line in lines:
        if line == "event: message":
            break
    yield from itertools.takewhile(bool, lines)


def test_a_ticket_expires(server: ServedGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_ticket, "LIFETIME", timedelta(0))
    address = open_ticket(server, "ana")
    with server.client(None) as nobody:
        assert status_of_stream(nobody, address) == 401


def test_pages_of_named_sites_alone_may_use_the_addresses_of_pages(tmp_path: Path) -> None:
    shop = "https://shop.example.com"
    with (
        served_gateway(tmp_path / "t.db", adapters=[WebAdapter()], frames=(shop,)) as server,
        server.client("eve") as client,
    ):
        asked = {"Access-Control-Request-Method": "POST"}
        for site, permission in ((shop, shop), ("https://evil.example", None)):
            made = client.post("/web/visitors", headers={"Origin": site})
            assert made.headers.get("access-control-allow-origin") == permission
            asked["Origin"] = site
            preflight = client.options("/web/visitors", headers=asked)
            assert preflight.headers.get("access-control-allow-origin") == permission
        other = client.get("/sessions", headers={"Origin": shop})
        assert "access-control-allow-origin" not in other.headers


def test_page_that_received_nothing_gets_what_was_sent_to_the_page_before(tmp_path: Path) -> None:
    """The page was left while its first answer was sent: it never knew an event id."""
    with (
        served_gateway(tmp_path / "talk.db", adapters=[WebAdapter()]) as server,
        server.client("ana") as client,
    ):
        with Page(client) as page:
            say(client, "hola")
            sent = page.next_message()
        with Page(client, last="0") as page:
            assert page.next_message() == sent
        with server.client("bob") as other, Page(other, last="0") as page:
            say(other, "adios")
            assert page.next_message()["text"].startswith("You said: adios")


def test_answer_sent_while_a_page_reads_what_it_missed_is_shown_once(
    server: ServedGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page opened during a turn: its answer is in the queue of the page and in the outbox."""
    may_read = threading.Event()
    find_missed = web._Page._missed

    async def wait_and_find(page: web._Page) -> list[Delivery]:
        assert await asyncio.to_thread(may_read.wait, PATIENCE)
        return await find_missed(page)

    monkeypatch.setattr(web._Page, "_missed", wait_and_find)
    with server.client("ana") as client, Page(client, last="0") as page:
        say(client, "hola")
        eventually(lambda: [state for _, state in delivery_states(server)] == ["sent"])
        may_read.set()
        assert page.next_message()["text"].startswith("You said: hola")
        say(client, "/queue")
        between = page.events_until_message()
        assert "delta" not in between  # a piece of the first answer, after its whole
        assert page.last_message["text"].startswith("Nothing is waiting")


def test_head_of_the_events_takes_no_delivery(server: ServedGateway) -> None:
    with server.client("ana") as client:
        say(client, "hola")
        eventually(lambda: [state for _, state in delivery_states(server)] == ["waiting"])
        response = client.head("/web/den/events")
        assert response.headers["content-type"].startswith("text/event-stream")
        with Page(client) as page:
            assert page.next_message()["text"].startswith("You said: hola")


def test_newest_deliveries_are_those_of_the_callers_own_chat(server: ServedGateway) -> None:
    with server.store() as store:
        for name in ("ana", "bob"):
            origin = Source("web", "den", account=name, user_id=name)
            for number in (1, 2, 3):
                store.outbox.put(f"{name} {number}", "origin", origin=origin)
    with server.client("ana") as client:
        reply = client.get("/web/den/deliveries", params={"limit": 2}).json()
    assert [each["body"]["text"] for each in reply["items"]] == ["ana 3", "ana 2"]
    with server.client("eve") as client:
        assert client.get("/web/den/deliveries").status_code == 403


def test_event_id_of_other_chat_replays_nothing(tmp_path: Path) -> None:
    with served_gateway(
        tmp_path / "talk.db", adapters=[WebAdapter()], stream_seconds=0.5
    ) as server:
        with server.store() as store:
            origin = Source("web", "anas", account="ana", user_id="ana")
            first = store.outbox.put("one", "origin", origin=origin)
            store.outbox.put("the password is swordfish", "origin", origin=origin)
        with server.client("bob", headers={"Last-Event-ID": first.delivery}) as client:
            response = client.get("/web/anas/events")
    assert response.status_code == 200
    assert "swordfish" not in response.text
