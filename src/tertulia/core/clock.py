"""The clock of a store: the machine's, or one that a caller supplies."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple, Protocol

from tertulia.core.text.excerpt import short_repr
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

    @classmethod
    def of(cls, clock: Clock) -> UtcClock:
        """Return a supplied clock converted to UTC; raise `ConfigError` if it has no now()."""
        if not callable(getattr(clock, "now", None)):
            raise ConfigError(
                f"clock is {short_repr(clock)}.",
                hint="Give an object whose now() returns an aware datetime.",
                field="clock",
            )
        return cls(clock)

    def now(self) -> datetime:
        """Return the clock's time in UTC; raise `ConfigError` if it has no time zone."""
        now: object = self.clock.now()  # callers without a type checker may return anything
        if not isinstance(now, datetime) or now.tzinfo is None:
            raise ConfigError(
                f"The clock of this store returned {short_repr(now)}, which has no time zone.",
                hint="Return an aware datetime from now(), such as datetime.now(UTC).",
                field="clock",
            )
        try:
            return now.astimezone(UTC)
        except OverflowError as problem:
            raise ConfigError(
                f"The clock of this store returned {short_repr(now)}, which UTC cannot express.",
                hint="Return the current time from now(), such as datetime.now(UTC).",
                field="clock",
            ) from problem
