"""What the inbox and the outbox have in common."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, Protocol, TypeVar

from tertulia.core import cursor as cursors
from tertulia.core.session import Page
from tertulia.errors import ConfigError

LIMIT: Final = 1000


class _Numbered(Protocol):
    @property
    def id(self) -> int: ...


N = TypeVar("N", bound=_Numbered)


def check_word(name: str, value: object, allowed: Sequence[str]) -> None:
    """Refuse a word that is none of the allowed ones."""
    if value not in allowed:
        raise ConfigError(
            f"{name} is {value!r}.", hint=f"Allowed: {', '.join(allowed)}.", field=name
        )


def check_limit(limit: int) -> None:
    if not 1 <= limit <= LIMIT:
        raise ConfigError(f"limit is {limit!r}.", hint=f"Allowed: 1 to {LIMIT}.", field="limit")


def lease_micros(seconds: float) -> int:
    if not 0 < seconds < 1e9:
        raise ConfigError(
            f"lease_seconds is {seconds!r}.",
            hint="Give a number above 0.",
            field="lease_seconds",
        )
    return round(seconds * 1_000_000)


def later(now: datetime, seconds: float | None) -> datetime:
    """The moment to try again."""
    try:
        return now + timedelta(seconds=max(0, seconds or 0))
    except (OverflowError, ValueError) as problem:
        raise ConfigError(
            f"retry_after is {seconds!r}.", hint="Give a number of seconds.", field="retry_after"
        ) from problem


def after(cursor: str | None) -> int:
    """The number that a page begins after."""
    return cursors.read(cursor, 1)[0] if cursor else 0


def page(found: Sequence[N], limit: int) -> Page[N]:
    """A page of what was found, which is one more than the limit if there is more."""
    more = len(found) > limit
    return Page(tuple(found[:limit]), cursors.write(found[limit - 1].id) if more else None)
