"""A clock that stands still until it is moved."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

# A Wednesday noon: no daily reset and no change of summer time is near.
START: Final = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)


class FakeClock:
    """Tells the time it was given: `tertulia.open(path, clock=FakeClock())`."""

    def __init__(self, at: datetime = START) -> None:
        self._at = at

    def now(self) -> datetime:
        return self._at

    def forward(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> datetime:
        """Move on, or back with a negative number; the new time."""
        self._at += timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        return self._at
