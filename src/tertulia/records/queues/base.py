"""Checks, waiting and paging shared by the queues.

A queue keeps order within a *lane*: the ordering key of an entry. The lane of an inbox item is its
conversation, the lane of a delivery is its chat, the lane of a schedule run is its schedule. Only
the head of a lane can be claimed (`is_next`, decision 0009), so entries of one lane are worked off
one after the other, and entries of different lanes side by side. `Database.write(work, lane=…)` and
`Transaction.lock(lane)` take the same string: two transactions with the same lane never run at the
same time.
"""

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

MAX_LIMIT: Final = 1000
_POLL_SECONDS: Final = 1.0

# A statement that returns one truthy value if something is due, with its parameters but for `now`.
DueQuery = tuple[str, dict[str, Any]]


class _Numbered(Protocol):
    @property
    def id(self) -> int: ...


N = TypeVar("N", bound=_Numbered)


def check_choice(name: str, value: object, allowed: Sequence[str]) -> None:
    """Raise `ConfigError` unless the value of parameter `name` is one of the allowed words."""
    if value not in allowed:
        raise ConfigError(
            f"{name} is {value!r}.", hint=f"Allowed: {', '.join(allowed)}.", field=name
        )


def check_limit(limit: int) -> None:
    """Raise `ConfigError` unless a page or claim size is between 1 and `MAX_LIMIT`."""
    validate.integer("limit", limit, 1, MAX_LIMIT)


def check_claimed(name: str, value: object, kind: type) -> None:
    """Raise `ConfigError` unless the value is an entry of the type that `claim()` returns."""
    if not isinstance(value, kind):
        raise ConfigError(
            f"{name} is {value!r}.", hint="Pass an entry that claim() returned.", field=name
        )


def lease_micros(seconds: float) -> int:
    """Return a lease time in microseconds; raise `ConfigError` unless it is above 0."""
    validate.number("lease_seconds", seconds)
    if not 0 < seconds < 1e9:
        raise ConfigError(
            f"lease_seconds is {seconds!r}.",
            hint="Give a number above 0.",
            field="lease_seconds",
        )
    return round(seconds * 1_000_000)


def wait_until_due(
    context: StoreContext, channel: str, queries: Sequence[DueQuery], seconds: float
) -> bool:
    """Wait until one of the queries reports something due; return False after `seconds`.

    A notification on the channel is only a hint: it can be missed, and time makes entries due
    without one. So the queries are run at least once a second all the same.
    """
    validate.number("seconds", seconds)
    deadline = time.monotonic() + seconds
    while True:
        notifications = context.db.notifications(channel)
        now = to_micros(context.clock.now())
        if context.db.read(partial(_is_due, queries=queries, now=now)):
            return True
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        context.db.wait(channel, notifications, min(left, _POLL_SECONDS))


def _is_due(tx: Transaction, queries: Sequence[DueQuery], now: int) -> bool:
    rows = (tx.one(statement, {**params, "now": now}) for statement, params in queries)
    return any(row is not None and row[0] for row in rows)


def time_after(now: datetime, seconds: float | None) -> datetime:
    """Return the time `seconds` after `now`, or `now` for None and for negative numbers."""
    if seconds is not None:
        validate.number("retry_after", seconds)
    try:
        return now + timedelta(seconds=max(0, seconds or 0))
    except (OverflowError, ValueError) as problem:
        raise ConfigError(
            f"retry_after is {seconds!r}.", hint="Give a number of seconds.", field="retry_after"
        ) from problem


def id_before_page(cursor: str | None) -> int:
    """Return the id after which the page of a cursor begins; 0 without a cursor."""
    return cursors.decode(cursor, 1)[0] if cursor else 0


def page_of(entries: Sequence[N], limit: int) -> Page[N]:
    """Return a page of at most `limit` entries.

    Pass one entry more than the limit if there are more: then the page has a cursor for the next.
    """
    has_more = len(entries) > limit
    return Page(tuple(entries[:limit]), cursors.encode(entries[limit - 1].id) if has_more else None)
