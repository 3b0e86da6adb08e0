"""Local times without a zone, as other systems hand them around, and the store's."""

from __future__ import annotations

from datetime import UTC, datetime

from tertulia.errors import ConfigError


def local(moment: datetime) -> datetime:
    """A moment as the clock on the wall shows it; `fold` tells the second showing of an hour."""
    return moment.astimezone().replace(tzinfo=None)


def aware(moment: datetime) -> datetime:
    """The moment of a local time; one that has a zone keeps to it."""
    try:
        return moment.astimezone(UTC)
    except (AttributeError, OverflowError, ValueError, OSError) as problem:
        raise ConfigError(
            f"{moment!r} is no moment that can be stored.",
            hint="Give a datetime of the years 2 to 9998.",
        ) from problem
