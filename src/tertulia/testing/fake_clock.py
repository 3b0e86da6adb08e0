"""A clock for tests that stands still until it is moved."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

# A Wednesday noon: no daily reset and no daylight saving change is near.
START: Final = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)


class FakeClock:
    """A clock that returns the time it was set to: `tertulia.open(path, clock=FakeClock())`."""

    def __init__(self, at: datetime = START) -> None:
        self._at = at

    def now(self) -> datetime:
        return self._at

    def forward(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> datetime:
        """Move the clock forward, or back with a negative number, and return the new time."""
        self._at += timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        return self._at
