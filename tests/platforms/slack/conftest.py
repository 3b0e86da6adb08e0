"""A Slack on loopback, and shorter pauses before the next connection."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tertulia.core.backoff import Backoff
from tertulia.platforms.slack import adapter as adapter_module
from tertulia.platforms.slack import socket_mode
from tests.servers.slack import (
    SlackServer,
)


@pytest.fixture
def server() -> Iterator[SlackServer]:
    with SlackServer() as running:
        yield running
    assert running.violations == []
    assert running.pings == []


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses double as they do in production, from a shorter first one."""
    monkeypatch.setattr(adapter_module, "_RECONNECT", Backoff(first=0.02, longest=0.2))
    monkeypatch.setattr(socket_mode, "_RECONNECT", Backoff(first=0.02, longest=0.2))
    monkeypatch.setattr(socket_mode, "_STABLE_SECONDS", 0.0)
