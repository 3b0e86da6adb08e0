"""Moments, costs, counts and names as people read them."""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo

from tertulia.core.text.format import (
    NONE,
    cost,
    dollars,
    name_of,
    stamp,
    state_of,
)
from tertulia.core.usage import Usage, from_nano, to_nano, weakest

__all__ = [
    "COUNTS",
    "NONE",
    "ago",
    "cost",
    "dollars",
    "name_of",
    "short",
    "size",
    "stamp",
    "state_of",
    "total",
    "when",
]

COUNTS = ("input", "output", "cache_read", "cache_write", "reasoning")

_UNITS = (
    (timedelta(days=1), "days"),
    (timedelta(hours=1), "h"),
    (timedelta(minutes=1), "min"),
)
_STEPS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def ago(moment: datetime, now: datetime) -> str:
    passed = now - moment
    for unit, words in _UNITS:
        if passed >= 2 * unit or (passed >= unit and unit < timedelta(days=1)):
            return f"{passed // unit:,} {words} ago"
    return "just now"


def when(moment: datetime, now: datetime, zone: tzinfo) -> str:
    """How long ago, while that says more than the date."""
    if timedelta(minutes=-1) < now - moment < timedelta(days=30):
        return ago(moment, now)
    return f"{moment.astimezone(zone):%Y-%m-%d}"


def short(count: int) -> str:
    """A count in at most five characters: 980, 12.3k, 4.5M."""
    for size, letter in _STEPS:
        # From here on rounding would give 1000 of the smaller unit.
        if count >= size * 0.9995:
            value = count / size
            return f"{value:.1f}{letter}" if value < 99.95 else f"{value:.0f}{letter}"
    return str(count)


def size(count: int) -> str:
    """A number of bytes, in the units that disks are sold in."""
    words = short(count)
    return f"{words} bytes" if words.isdigit() else f"{words[:-1]} {words[-1]}B"


def total(usages: list[Usage]) -> Usage:
    """The sum of sums, as certain as the least certain of them."""
    known = [nano for nano in (to_nano(usage.cost_usd) for usage in usages) if nano is not None]
    status = None
    for usage in usages:
        status = weakest(status, usage.cost_status)
    return Usage(
        *(sum(getattr(usage, name) for usage in usages) for name in COUNTS),
        cost_usd=from_nano(sum(known)) if known else None,
        cost_status=status,
    )
