"""What groups of calls used in a period: the recent calls and the running totals, added up.

A grouping is a tuple of dimensions: `("model",)` has a group for each model, `("day", "model")` one
for each day and model, and `()` a single one. All groupings that a caller wants come from one read
of the recent calls and one of the totals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import tzinfo
from functools import cache
from operator import itemgetter
from typing import Final, Literal, NamedTuple

from tertulia.records.usage_running import (
    LAST_QUARTER,
    QUARTER_HOUR,
    GroupUsage,
    Kind,
    day_of,
    day_starts,
    read_span,
    read_usage,
)
from tertulia.storage.base import Row, Transaction
from tertulia.storage.rows import PARSE_ERRORS, corrupt_error

Dimension = Literal["day", "model", "platform", "person", "session"]
Dimensions = tuple[Dimension, ...]
Key = tuple[str, ...]
_BY_SESSION: Final[Dimensions] = ("session",)
_FOREVER: Final = LAST_QUARTER * QUARTER_HOUR  # in microseconds
# In a longer period, the days for which there are totals are looked up first.
_MANY_QUARTERS: Final = 400 * 24 * 4


class Period(NamedTuple):
    """The whole quarters of an hour between two times, and the parts of quarters at both ends.

    The parts are from `since` to `since_end` and from `until_start` to `until`, in microseconds.
    """

    first_quarter: int
    last_quarter: int
    since: int
    since_end: int
    until_start: int
    until: int

    @classmethod
    def between(cls, since: int | None, until: int | None) -> Period:
        """Return the period from one time on and before another; None is no limit."""
        start = -_FOREVER if since is None else since
        end = _FOREVER if until is None else max(until, start)
        first, last = -(-start // QUARTER_HOUR), end // QUARTER_HOUR
        if first > last:  # both limits lie in one quarter
            return cls(last, last, start, end, end, end)
        return cls(first, last, start, first * QUARTER_HOUR, last * QUARTER_HOUR, end)


def read_groups(
    tx: Transaction,
    wanted: Sequence[Dimensions],
    period: Period,
    *,
    zone: tzinfo,
    person: str | None = None,
) -> dict[Dimensions, dict[Key, Row]]:
    """Return what each group of each grouping used, ordered by the names of the groups.

    With `person`, only what that person used.
    """
    try:
        return {
            grouping: dict(sorted(groups.items(), key=itemgetter(0)))
            for grouping, groups in _read_unordered(tx, wanted, period, zone, person).items()
        }
    except PARSE_ERRORS as problem:
        raise corrupt_error("the ledger", problem) from problem


def _read_unordered(
    tx: Transaction,
    wanted: Sequence[Dimensions],
    period: Period,
    zone: tzinfo,
    person: str | None,
) -> dict[Dimensions, dict[Key, Row]]:
    sums: dict[Dimensions, dict[Key, Row]] = {}
    groupings = [grouping for grouping in wanted if grouping != _BY_SESSION]
    if len(groupings) < len(wanted):
        # There are no totals of sessions: there would be nearly as many of them as calls.
        rows = tx.all("usage_sum_session", {**period._asdict(), "person": person})
        sums[_BY_SESSION] = {(session,): tuple(counts) for session, *counts in rows}
    if groupings:
        kinds = {grouping: _kind_of(grouping, person) for grouping in groupings}
        recent = _read_recent(tx, groupings, period, person)
        past = _read_past(tx, kinds, period, zone, person)
        for grouping, kind in kinds.items():
            sums[grouping] = _add_up(_key_function(grouping, zone), [*recent, *past[kind]])
    return sums


def _kind_of(grouping: Dimensions, person: str | None) -> Kind:
    """Return the kind of running totals that has the groups of a grouping."""
    kinds: tuple[Kind, ...] = ("model", "platform", "person")
    kind = next((each for each in kinds if each in grouping), None)
    if person is None:
        return kind or "all"
    return "person" if kind in (None, "person") else "detail"


def _read_recent(
    tx: Transaction, groupings: Sequence[Dimensions], period: Period, person: str | None
) -> list[GroupUsage]:
    """Return the calls that are not in the running totals yet, and those of divided quarters."""
    used = {dimension for grouping in groupings for dimension in grouping}
    params = {
        **period._asdict(),
        **{f"by_{each}": int(each in used) for each in ("day", "platform", "person", "model")},
        "person": person,
    }
    return [
        GroupUsage(quarter, platform, name, model, tuple(counts))
        for quarter, platform, name, model, *counts in tx.all("usage_recent", params)
    ]


def _read_past(
    tx: Transaction,
    kinds: Mapping[Dimensions, Kind],
    period: Period,
    zone: tzinfo,
    person: str | None,
) -> dict[Kind, list[GroupUsage]]:
    """Return what the running totals of each kind have of the whole quarters of a period."""
    by_day = {kind for grouping, kind in kinds.items() if "day" in grouping}
    first, end = period.first_quarter, period.last_quarter
    starts: list[int] = []
    if by_day:
        if end - first > _MANY_QUARTERS:
            first_total, last_total = read_span(tx) or (end, end)
            first, end = max(first, first_total), min(end, last_total + 1)
        starts = day_starts(first, end, zone)
    if first >= end:
        return {kind: [] for kind in kinds.values()}
    limits = {kind: [*(starts if kind in by_day else [first]), end] for kind in kinds.values()}
    return read_usage(tx, limits, person=person)


def _key_function(grouping: Dimensions, zone: tzinfo) -> Callable[[GroupUsage], Key]:
    """Return the function that names the group of calls; some have no person or no model."""
    day = cache(lambda quarter: day_of(quarter, zone))
    names: dict[str, Callable[[GroupUsage], str]] = {
        "day": lambda calls: day(calls.start),
        "model": lambda calls: calls.model or "unknown",
        "platform": lambda calls: calls.platform,
        "person": lambda calls: calls.person or "shared",
    }
    chosen = [names[dimension] for dimension in grouping]
    return lambda calls: tuple([name(calls) for name in chosen])


def _add_up(key_of: Callable[[GroupUsage], Key], items: Iterable[GroupUsage]) -> dict[Key, Row]:
    """Return the sums of the counts of each group."""
    sums: dict[Key, Row] = {}
    for item in items:
        key = key_of(item)
        before = sums.get(key)
        sums[key] = item.counts if before is None else _add_counts(before, item.counts)
    return sums


def _add_counts(first: Row, second: Row) -> Row:
    *numbers, cost, certainty = first
    *others, other_cost, other_certainty = second
    costs = [each for each in (cost, other_cost) if each is not None]
    return (
        *(old + new for old, new in zip(numbers, others, strict=True)),
        sum(costs) if costs else None,
        min(certainty, other_certainty),
    )
