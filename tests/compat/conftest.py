"""A clock for façades: they take none, so the machine's is moved."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tertulia.records.store_context import SystemClock
from tertulia.testing.fake_clock import FakeClock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The clock of every store that is opened without one, standing still until it is moved."""
    found = FakeClock(datetime(2026, 3, 4, 12, 0, tzinfo=UTC))
    monkeypatch.setattr(SystemClock, "now", lambda self: found.now())
    return found
