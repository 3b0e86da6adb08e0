"""Whole conversations: a real gateway with its server, and a WhatsApp on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tertulia.agents.base import Agent
from tertulia.core.backoff import Backoff
from tertulia.gateway import retries
from tertulia.gateway.settings import GatewaySettings
from tertulia.platforms.whatsapp import adapter as adapter_module
from tertulia.platforms.whatsapp.adapter import WhatsAppAdapter
from tests.gateway.running_gateway import OPEN, Echo
from tests.http.served_gateway import ServedGateway, served_gateway
from tests.servers.whatsapp import (
    ANA,
    APP_SECRET,
    NUMBER_ID,
    TOKEN,
    VERIFY_TOKEN,
    WhatsAppServer,
)

RULES = GatewaySettings(gather_seconds=0, platforms={"whatsapp": OPEN}, drain_seconds=2)


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
    monkeypatch.setattr(retries, "ACCOUNT_BACKOFF", Backoff(first=0.05, longest=0.2))


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
