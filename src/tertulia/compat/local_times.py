"""Conversion between naive local times, which other systems use, and the store's aware times."""

from __future__ import annotations

from datetime import UTC, datetime

from tertulia.errors import ConfigError


def to_local(moment: datetime) -> datetime:
    """Return a time as naive local time; `fold` marks the second of two equal clock times."""
    return moment.astimezone().replace(tzinfo=None)


def to_utc(moment: datetime) -> datetime:
    """Return a time in UTC; a naive one is local time.

    Raise ConfigError if it is not a datetime or cannot be represented in UTC.
    """
    try:
        return moment.astimezone(UTC)
    except (AttributeError, OverflowError, ValueError, OSError) as problem:
        raise ConfigError(
            f"The time {moment!r} cannot be stored.",
            hint="Give a datetime of the years 2 to 9998.",
        ) from problem
