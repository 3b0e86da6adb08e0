"""Times, costs, counts and names in a form that people can read."""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo

from tertulia.core.text.format import (
    NO_VALUE,
    format_cost,
    format_dollars,
    format_time,
    session_name,
    session_state,
)
from tertulia.core.usage import Usage, from_nano, to_nano, weakest_status

__all__ = [
    "COUNTS",
    "NO_VALUE",
    "age_or_date",
    "ago",
    "byte_size",
    "format_cost",
    "format_dollars",
    "format_time",
    "session_name",
    "session_state",
    "short_count",
    "sum_usage",
]

COUNTS = ("input", "output", "cache_read", "cache_write", "reasoning")

_UNITS = (
    (timedelta(days=1), "days"),
    (timedelta(hours=1), "h"),
    (timedelta(minutes=1), "min"),
)
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def ago(moment: datetime, now: datetime) -> str:
    """Return how long ago a time was, such as "47 h ago"."""
    passed = now - moment
    for unit, name in _UNITS:
        if passed >= 2 * unit or (passed >= unit and unit < timedelta(days=1)):
            return f"{passed // unit:,} {name} ago"
    return "just now"


def age_or_date(moment: datetime, now: datetime, zone: tzinfo) -> str:
    """Return how long ago a time was; its date if that was over 30 days ago or is later."""
    if timedelta(minutes=-1) < now - moment < timedelta(days=30):
        return ago(moment, now)
    return f"{moment.astimezone(zone):%Y-%m-%d}"


def short_count(count: int) -> str:
    """Return a count in at most five characters: 980, 12.3k, 4.5M."""
    for factor, prefix in _PREFIXES:
        # A smaller count is shown in the smaller unit; from here on that would round to 1000.
        if count >= factor * 0.9995:
            value = count / factor
            return f"{value:.1f}{prefix}" if value < 99.95 else f"{value:.0f}{prefix}"
    return str(count)


def byte_size(count: int) -> str:
    """Return a number of bytes in decimal units, such as "168 kB"."""
    text = short_count(count)
    return f"{text} bytes" if text.isdigit() else f"{text[:-1]} {text[-1]}B"


def sum_usage(usages: list[Usage]) -> Usage:
    """Return the sum, with the least certain cost status among the parts."""
    nanos = [nano for nano in (to_nano(usage.cost_usd) for usage in usages) if nano is not None]
    status = None
    for usage in usages:
        status = weakest_status(status, usage.cost_status)
    return Usage(
        *(sum(getattr(usage, name) for usage in usages) for name in COUNTS),
        cost_usd=from_nano(sum(nanos)) if nanos else None,
        cost_status=status,
    )
