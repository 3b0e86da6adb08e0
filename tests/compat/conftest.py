"""A clock for the compatible APIs: they accept none, so the system clock is replaced."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tertulia.core.clock import SystemClock
from tertulia.testing.fake_clock import FakeClock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """Return the clock of every store opened without one; it stands still until it is set."""
    found = FakeClock(datetime(2026, 3, 4, 12, 0, tzinfo=UTC))
    monkeypatch.setattr(SystemClock, "now", lambda self: found.now())
    return found
