"""Retention: how long a store keeps sessions, files and completed queue entries."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from tertulia.core import validate
from tertulia.errors import ConfigError

_LONGEST_DAYS = 36_500


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How many days things are kept; without a number, for ever.

    settled_days     messages, deliveries and schedule runs that are settled
    sessions_days    sessions after their end, with everything in them
    media_days       files of messages after they came; their messages stay
    stranger_days    people who are guests and have no session and no schedule
    """

    settled_days: float | None = 30
    sessions_days: float | None = None
    media_days: float | None = None
    stranger_days: float | None = 30

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            days = getattr(self, name)
            if days is None:
                continue
            validate.number(name, days)
            if not 0 < days <= _LONGEST_DAYS:
                raise ConfigError(
                    f"{name} is {days!r}.",
                    hint=f"Give a number of days, at most {_LONGEST_DAYS}, or leave it out.",
                    field=name,
                )

    def cutoff(self, name: str, now: datetime) -> datetime | None:
        """Return the time before which things of that field are removed; None if never."""
        days: float | None = getattr(self, name)
        return None if days is None else now - timedelta(days=days)
