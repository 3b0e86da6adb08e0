"""A limit of how often something may happen for one name, in memory and of bounded size."""

from __future__ import annotations

import time
from collections.abc import Callable

_MAX_NAMES = 10_000


class RateBrake:
    """Allows `count` events of one name in each period of `seconds`."""

    def __init__(
        self, count: int, seconds: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._count = count
        self._seconds = seconds
        self._now = now
        # The start of the period of each name, and its events in that period; oldest first.
        self._periods: dict[str, tuple[float, int]] = {}

    def allows(self, name: str) -> bool:
        """Count an event and return whether it is within the limit."""
        now = self._now()
        started_at, count = self._periods.get(name, (now, 0))
        if now - started_at >= self._seconds:
            started_at, count = now, 0
        if name not in self._periods and len(self._periods) >= _MAX_NAMES:
            del self._periods[next(iter(self._periods))]
        self._periods[name] = started_at, count + 1
        return count < self._count
