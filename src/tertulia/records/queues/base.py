"""What the inbox and the outbox have in common."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from tertulia.core import cursor as cursors
from tertulia.core import validate
from tertulia.core.session import Page
from tertulia.errors import ConfigError
from tertulia.records.store_context import StoreContext
from tertulia.storage.base import Transaction
from tertulia.storage.rows import to_micros

LIMIT: Final = 1000
_LOOK_SECONDS: Final = 1.0


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
    validate.whole("limit", limit, 1, LIMIT)


def check_claimed(name: str, value: object, kind: type) -> None:
    """Refuse what was never claimed from a box."""
    if not isinstance(value, kind):
        raise ConfigError(f"{name} is {value!r}.", hint="Give what claim() gave.", field=name)


def lease_micros(seconds: float) -> int:
    validate.number("lease_seconds", seconds)
    if not 0 < seconds < 1e9:
        raise ConfigError(
            f"lease_seconds is {seconds!r}.",
            hint="Give a number above 0.",
            field="lease_seconds",
        )
    return round(seconds * 1_000_000)


def wait(
    context: StoreContext, channel: str, asked: Sequence[tuple[str, dict[str, Any]]], seconds: float
) -> bool:
    """Wait for a bell until one of some statements says that something is due.

    The bell is a hint that may be missed, and time makes things due too: so it is asked again and
    again all the same.
    """
    validate.number("seconds", seconds)
    deadline = time.monotonic() + seconds
    while True:
        notifications = context.db.notifications(channel)
        now = to_micros(context.clock.now())
        if context.db.read(partial(_is_due, asked=asked, now=now)):
            return True
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        context.db.wait(channel, notifications, min(left, _LOOK_SECONDS))


def _is_due(tx: Transaction, asked: Sequence[tuple[str, dict[str, Any]]], now: int) -> bool:
    rows = (tx.one(statement, {**params, "now": now}) for statement, params in asked)
    return any(row is not None and row[0] for row in rows)


def later(now: datetime, seconds: float | None) -> datetime:
    """The moment to try again."""
    if seconds is not None:
        validate.number("retry_after", seconds)
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
