"""The clock of a store: the machine's, or one that a caller supplies."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple, Protocol

from tertulia.errors import ConfigError


class Clock(Protocol):
    """A source of the current time; a test supplies its own."""

    def now(self) -> datetime:
        """Return the current time, with its time zone."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the current time in UTC."""
        return datetime.now(UTC)


class UtcClock(NamedTuple):
    """A supplied clock converted to UTC: ids, days and policies never depend on its own zone."""

    clock: Clock

    def now(self) -> datetime:
        """Return the clock's time in UTC; raise `ConfigError` if it has no time zone."""
        now = self.clock.now()
        if now.tzinfo is None:
            raise ConfigError(
                f"The clock of this store returned {now!r}, which has no time zone.",
                hint="Return an aware datetime from now(), such as datetime.now(UTC).",
                field="clock",
            )
        return now.astimezone(UTC)
