"""Whole conversations: a real gateway with its server, and a WhatsApp on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tertulia.agents.base import Agent, Event, Request, Step
from tertulia.core.backoff import Backoff
from tertulia.gateway import retries
from tertulia.gateway.settings import GatewaySettings
from tertulia.platforms.whatsapp import adapter as adapter_module
from tertulia.platforms.whatsapp.adapter import WhatsAppAdapter
from tertulia.records.queues import base as queues
from tests.gateway.running_gateway import OPEN, Echo, Scripted
from tests.http.served_gateway import ServedGateway, eventually, served_gateway
from tests.servers.scripted_http import Fault
from tests.servers.whatsapp import (
    ANA,
    ANA_ID,
    APP_SECRET,
    NUMBER_ID,
    TOKEN,
    VERIFY_TOKEN,
    WhatsAppServer,
    notification,
    refusal,
)

# With a single try, a failure that uses one up makes a dead letter at once.
RULES = GatewaySettings(gather_seconds=0, sends=1, platforms={"whatsapp": OPEN}, drain_seconds=2)


@pytest.fixture
def server() -> Iterator[WhatsAppServer]:
    with WhatsAppServer() as running:
        yield running
    assert running.violations == []


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter_module, "_RECONNECT", Backoff(first=0.02, longest=0.2))
    monkeypatch.setattr(adapter_module, "_CHECK_SECONDS", 0.2)
    monkeypatch.setattr(adapter_module, "FIRST_PAUSE", 0.02)
    monkeypatch.setattr(adapter_module, "_LONGEST_PAUSE", 0.1)
    monkeypatch.setattr(retries, "ACCOUNT_BACKOFF", Backoff(first=0.05, longest=0.2))
    monkeypatch.setattr(queues, "_POLL_SECONDS", 0.1)


def connected(server: WhatsAppServer, **options: Any) -> WhatsAppAdapter:
    values = {"phone_number_id": NUMBER_ID, "base_url": f"{server.url}/v23.0", **options}
    return WhatsAppAdapter(TOKEN, app_secret=APP_SECRET, verify_token=VERIFY_TOKEN, **values)


@contextmanager
def running(
    folder: Path,
    server: WhatsAppServer,
    *adapters: WhatsAppAdapter,
    agent: Agent | None = None,
    rules: GatewaySettings = RULES,
) -> Iterator[ServedGateway]:
    """Run a gateway with its HTTP server, which WhatsApp calls."""
    accounts = adapters or (connected(server),)
    with served_gateway(
        folder / "talk.db", agent=agent or Echo(), adapters=accounts, rules=rules
    ) as gateway:
        server.webhook = f"{gateway.url}/platforms/whatsapp"
        yield gateway


def test_message_is_answered(tmp_path: Path, server: WhatsAppServer) -> None:
    with running(tmp_path, server) as gateway:
        server.write(ANA, "hola")
        server.wait_sent(1)
        server.wait_accepted()
        with gateway.store() as store:
            (session,) = store.sessions.find().items
            assert session.key == f"agent:main:whatsapp:dm:{ANA}"
            assert session.origin.user_name == "Ana"
    assert server.texts == ["re hola"]


def test_address_is_verified_through_the_server(tmp_path: Path, server: WhatsAppServer) -> None:
    with running(tmp_path, server):
        query = {"hub.mode": "subscribe", "hub.challenge": "1158201444"}
        address = server.webhook or ""
        with httpx2.Client(verify=False) as client:
            right = client.get(address, params=query | {"hub.verify_token": VERIFY_TOKEN})
            wrong = client.get(address, params=query | {"hub.verify_token": "x"})
            forged = client.post(address, json=notification())
    assert (right.status_code, right.text) == (200, "1158201444")
    assert (wrong.status_code, forged.status_code) == (403, 403)


def test_repeated_notification_is_answered_once(tmp_path: Path, server: WhatsAppServer) -> None:
    with running(tmp_path, server):
        message = server.write(ANA, "once")
        server.notify_app(messages=[message, message])
        server.wait_sent(1)
        server.notify_app(messages=[message])
        server.write(ANA, "last")
        server.wait_sent(2)
        server.wait_accepted()
    assert server.texts == ["re once", "re last"]


def test_slow_turn_is_acknowledged_at_once_and_runs_once(
    tmp_path: Path, server: WhatsAppServer
) -> None:
    """Work before the acknowledgement, which WhatsApp wants within a second: it would run again."""
    turns: list[str] = []

    async def script(request: Request) -> AsyncGenerator[Event, None]:
        turns.append(request.text)
        await asyncio.to_thread(server.wait_accepted)
        yield Step("done")

    with running(tmp_path, server, agent=Scripted(script)):
        message = server.write(ANA, "work")
        server.notify_app(messages=[message])
        server.wait_sent(1)
        server.wait_accepted()
    assert (turns, server.texts) == (["work"], ["done"])


def test_notification_of_three_megabytes_is_accepted(
    tmp_path: Path, server: WhatsAppServer
) -> None:
    """The largest that Meta sends; a refused one would be repeated for days."""
    with running(tmp_path, server):
        server.notify_app(messages=[server.message(ANA, "hola")], padding="x" * 3 * 2**20)
        server.wait_sent(1)
        server.wait_accepted()
    assert server.texts == ["re hola"]


def test_person_who_hides_the_number_goes_on(tmp_path: Path, server: WhatsAppServer) -> None:
    """Also on another machine, which has never seen the number of this person."""
    rules = GatewaySettings(gather_seconds=0, drain_seconds=2)
    with running(tmp_path, server, rules=rules) as gateway:
        server.write(ANA, "hola")
        (pairing,) = server.wait_sent(1)
        with gateway.store() as store:
            store.people.approve(pairing.text.splitlines()[0].rpartition(" ")[2])
        server.write(ANA, "by both", user_id=ANA_ID)
        server.wait_sent(2)
        server.write(None, "by id", user_id=ANA_ID)
        server.wait_sent(3)
    with running(tmp_path, server, rules=rules) as gateway:
        server.write(None, "elsewhere", user_id=ANA_ID)
        server.wait_sent(4)
        with gateway.store() as store:
            assert store.sessions.count() == 1
    assert server.texts[1:] == ["re by both", "re by id", "re elsewhere"]
    assert {sent.to for sent in server.sent} == {ANA}


def test_end_of_the_24_hours_is_a_dead_letter_that_says_why(
    tmp_path: Path, server: WhatsAppServer
) -> None:
    server.closed.add(ANA)
    with running(tmp_path, server) as gateway, gateway.store() as store:
        store.outbox.put("a reminder", f"whatsapp:{ANA}")
        (dead,) = eventually(lambda: store.outbox.find(state="dead").items)
        assert "24 hours" in dead.problem


def test_message_that_fails_later_is_a_dead_letter(tmp_path: Path, server: WhatsAppServer) -> None:
    with running(tmp_path, server) as gateway, gateway.store() as store:
        server.write(ANA, "hola")
        (sent,) = server.wait_sent(1)
        eventually(lambda: store.outbox.find(state="sent").items)
        server.report(sent, "failed", errors=[{"code": 131026, "title": "x"}])
        (dead,) = eventually(lambda: store.outbox.find(state="dead").items)
        assert "131026" in dead.problem


def test_unknown_send_is_settled_by_its_status(tmp_path: Path, server: WhatsAppServer) -> None:
    server.spoil("messages", Fault(takes=True, end="cut"))
    # The read mark of the turn goes to the same address.
    with running(tmp_path, server) as gateway, gateway.store() as store:
        store.outbox.put("hola", f"whatsapp:{ANA}")
        (sent,) = server.wait_sent(1)
        eventually(lambda: store.outbox.find(state="unknown").items)
        server.report(sent, "delivered")
        (settled,) = eventually(lambda: store.outbox.find(state="sent").items)
        assert settled.message_id == sent.message_id
    assert server.texts == ["hola"]


def test_status_before_the_response_loses_nothing(tmp_path: Path, server: WhatsAppServer) -> None:
    server.status_first = True
    with running(tmp_path, server) as gateway, gateway.store() as store:
        for number in range(3):
            server.write(ANA, f"m{number}")
            server.wait_sent(number + 1)
        eventually(lambda: len(store.outbox.find(state="sent").items) == 3)
        server.wait_accepted()
    assert server.texts == ["re m0", "re m1", "re m2"]


def test_revoked_token_makes_no_dead_letters(tmp_path: Path, server: WhatsAppServer) -> None:
    with running(tmp_path, server) as gateway, gateway.store() as store:
        server.write(ANA, "first")
        server.wait_sent(1)
        server.token = "another"
        for number in range(10):
            store.outbox.put(f"waiting {number}", f"whatsapp:3460000000{number % 3}")
        server.wait(lambda: server.count("messages") > 4)
        assert not store.outbox.find(state="dead").items
        server.token = TOKEN
        server.wait_sent(11)
        server.write(ANA, "last")
        server.wait_sent(12)
        assert not store.outbox.find(state="dead").items
    assert len(set(server.texts)) == 12


def test_limits_without_a_pause_use_up_no_tries(tmp_path: Path, server: WhatsAppServer) -> None:
    with running(tmp_path, server) as gateway, gateway.store() as store:
        server.spoil("messages", *[refusal(131056)] * 4)
        store.outbox.put("hola", f"whatsapp:{ANA}")
        server.wait_sent(1)
        eventually(lambda: store.outbox.find(state="sent").items)
    assert server.texts == ["hola"]


def test_file_reaches_the_agent_and_a_large_one_is_told(
    tmp_path: Path, server: WhatsAppServer
) -> None:
    agent = Echo()
    with running(tmp_path, server, agent=agent) as gateway:
        small, endless = server.add_file(b"\xff\xd8\xff small"), server.add_file(None)
        server.write(ANA, None, type="image", image={"id": small, "caption": "see"})
        server.wait_sent(1)
        server.write(ANA, None, type="document", document={"id": endless, "caption": "and"})
        server.wait_sent(3)
        with gateway.store() as store:
            (session,) = store.sessions.find().items
            stored = [m for m in store.transcript(session.id).load() if m.get("media")]
            assert stored[0]["media"][0]["type"] == "image/jpeg"
    assert len(agent.asked) == 2
    assert any("larger than" in text for text in server.texts)


def test_two_gateways_share_one_number(tmp_path: Path, server: WhatsAppServer) -> None:
    with running(tmp_path, server):
        first = server.webhook
        with running(tmp_path, server) as gateway:
            for number in range(12):
                message = server.write(f"3460000000{number % 4}", f"m{number}")
                server.webhook = first if number % 2 else f"{gateway.url}/platforms/whatsapp"
                server.notify_app(messages=[message])
            server.wait_sent(12)
            server.wait_accepted()
            with gateway.store() as store:
                assert len(store.outbox.find(limit=100).items) == 12
    assert sorted(server.texts) == sorted(f"re m{number}" for number in range(12))
