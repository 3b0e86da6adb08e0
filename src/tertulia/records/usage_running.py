"""Running totals of usage: what a group had used until the end of a quarter of an hour.

A group is everybody, a model, a platform, a person, or a person with one model on one platform.
What it used between two times is the difference of two rows. So a sum costs as much as it has
groups and days, however long the ledger is, and days can be those of any time zone (decision 0052).

A turn writes a call into `usage_new`, and does nothing for the sums. `roll_up` moves it to
`usage_kept` and adds it to a row of `usage_sums`; after its quarter, it moves that row to the
running totals. Every call is in one of the three, so whoever reads them at one moment has all
of them (decision 0062).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, time, timedelta, tzinfo
from functools import partial
from itertools import groupby, pairwise
from operator import add, itemgetter, sub
from typing import Final, Literal, NamedTuple

from tertulia.core.clock import Clock
from tertulia.core.message import to_json
from tertulia.storage.base import Database, Row, Transaction
from tertulia.storage.rows import from_micros, to_micros

QUARTER_HOUR: Final = 900_000_000
FIRST_QUARTER: Final = -(2**32)  # before every call, by some 120,000 years
LAST_QUARTER: Final = -FIRST_QUARTER

Kind = Literal["all", "model", "platform", "person", "detail"]

_ROWS_PER_STEP: Final = 100  # some milliseconds
_CALLS_PER_STEP: Final = 500  # some milliseconds
# So few new calls cost a sum next to nothing, and moving each by itself would cost a commit.
_FEW_CALLS: Final = 200
_LANE: Final = "usage totals"

_NAMES: Final = (
    "calls", "input", "output", "cache_read", "cache_write", "reasoning", "cost", "priced",
    "unknown", "estimated", "actual",
)  # fmt: skip
_ZERO: Final = (0,) * len(_NAMES)


class Group(NamedTuple):
    """A group of calls; `platform` and `model` are empty unless its kind is "detail"."""

    kind: str
    name: str
    platform: str = ""
    model: str = ""


class GroupUsage(NamedTuple):
    """What a group used in the quarters from `start` on. Names that do not describe it are empty.

    `counts` are the calls, five numbers of tokens, the cost or None, and the certainty of the cost.
    """

    start: int
    platform: str
    person: str
    model: str
    counts: Row


class RunningTotals:
    """The running totals of a store."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db = db
        self._clock = clock
        self._complete_before: int | None = None  # the quarter up to which nothing is left

    def roll_up(self, *, steps: int | None = None) -> bool:
        """Add up new calls, and move those of past quarters to the totals; return whether all are.

        With `steps` in at most so many transactions; a few new calls may stay as they are then, and
        past quarters are looked at once in a quarter.
        """
        before = to_micros(self._clock.now()) // QUARTER_HOUR
        params = {"before": before, "limit": _ROWS_PER_STEP}
        while True:
            if self._has_new_calls(0 if steps is None else _FEW_CALLS):
                work = _add_new_calls
            elif steps is not None and before == self._complete_before:
                return True
            elif self._db.query("usage_sums_any_before", {"before": before}):
                work = partial(_move, params=params)
            else:
                self._complete_before = before
                return True
            if steps is not None:
                if steps == 0:
                    return False
                steps -= 1
            self._db.write(work, lane=_LANE)

    def _has_new_calls(self, few: int) -> bool:
        """Return whether there are more than `few` calls that were not added up."""
        return bool(self._db.query("usage_new_more_than", {"few": few}))


def _add_new_calls(tx: Transaction) -> None:
    """Move some new calls to the others, and add them to the sums of their quarters."""
    tx.many("usage_sums_add", tx.all("usage_new_take", {"limit": _CALLS_PER_STEP}))


def _move(tx: Transaction, params: dict[str, int]) -> None:
    _, last = read_span(tx) or (0, FIRST_QUARTER)
    rows = sorted(tx.all("usage_sums_take", params))
    for quarter, of_quarter in groupby(rows, itemgetter(0)):
        totals = _add_up(of_quarter)
        changes = [
            {**group._asdict(), "quarter": quarter, **dict(zip(_NAMES, total, strict=True))}
            for group, total in totals.items()
        ]
        tx.many("usage_group_put", [group._asdict() for group in totals])
        tx.many("usage_running_add", changes)
        if quarter < last:  # there are later totals
            tx.many("usage_running_shift", changes)
        tx.many("usage_newest_put", [group._asdict() for group in totals])


def _add_up(rows: Iterable[Row]) -> dict[Group, Row]:
    """Return what rows of one quarter add to the total of each group."""
    totals: dict[Group, Row] = {}
    for _, platform, person, model, *counts, cost, certainty in rows:
        certainties = [certainty == number for number in range(3)]
        added = (*counts, cost or 0, int(cost is not None), *map(int, certainties))
        for group in (
            Group("all", ""),
            Group("model", model),
            Group("platform", platform),
            Group("person", person),
            Group("detail", person, platform, model),
        ):
            totals[group] = tuple(map(add, totals.get(group, _ZERO), added))
    return totals


def read_usage(
    tx: Transaction, limits: Mapping[Kind, Sequence[int]], *, person: str | None = None
) -> dict[Kind, list[GroupUsage]]:
    """Return what each group of some kinds used between one limit of its kind and the next.

    Groups that used nothing in between are left out. `person` chooses groups of that person.
    """
    usage: dict[Kind, list[GroupUsage]] = {kind: [] for kind in limits}
    totals: dict[tuple[Kind, str, str, str], dict[int, Row]] = {}
    for kind, platform, name, model, quarter, *total in _read_totals(tx, limits, person):
        totals.setdefault((kind, platform, name, model), {})[quarter] = tuple(total)
    for (kind, platform, name, model), by_quarter in totals.items():
        for start, stop in pairwise(limits[kind]):
            before, after = by_quarter.get(start, _ZERO), by_quarter.get(stop, _ZERO)
            if after[0] > before[0]:
                counts = _counts(before, after)
                usage[kind].append(GroupUsage(start, platform, name, model, counts))
    return usage


def _read_totals(
    tx: Transaction, limits: Mapping[Kind, Sequence[int]], person: str | None
) -> list[Row]:
    """Return the total of each group before each limit of its kind."""
    needed = _totals_needed(limits)
    # Of the time up to now there is one total of each group, and these lie side by side.
    newest = [kind for kind, quarters in needed.items() if quarters == [LAST_QUARTER]]
    rows = [
        row
        for kind in newest
        for row in tx.all(
            "usage_newest_of", {"kind": kind, "quarter": LAST_QUARTER, "person": person}
        )
    ]
    others = {kind: quarters for kind, quarters in needed.items() if kind not in newest}
    if others:
        rows += tx.all("usage_running_at", {"limits": to_json(others), "person": person})
    return rows


def _totals_needed(limits: Mapping[Kind, Sequence[int]]) -> dict[Kind, list[int]]:
    """Return the limits of each kind before which there may be calls."""
    return {
        kind: [quarter for quarter in quarters if quarter > FIRST_QUARTER]
        for kind, quarters in limits.items()
    }


def read_span(tx: Transaction) -> tuple[int, int] | None:
    """Return the first and the last quarter of the running totals; None if there is none."""
    first, last = tx.one("usage_running_span") or (None, None)
    return None if first is None or last is None else (first, last)


def day_of(quarter: int, zone: tzinfo) -> str:
    """Return the day (YYYY-MM-DD) that a quarter belongs to in a time zone."""
    return f"{_local(quarter, zone):%Y-%m-%d}"


def day_starts(first: int, end: int, zone: tzinfo) -> list[int]:
    """Return the quarters from `first` on and before `end` with which a day begins, `first` too.

    A day may begin twice: where the clock is set back shortly after midnight.
    """
    starts = []
    quarter = first
    while quarter < end:
        starts.append(quarter)
        local = _local(quarter, zone)
        midnight = datetime.combine(local.date() + timedelta(days=1), time(), zone)
        following = -(-to_micros(midnight) // QUARTER_HOUR)
        if _local(following, zone).utcoffset() == local.utcoffset():
            quarter = following
            continue
        while quarter < end and _local(quarter, zone).date() == local.date():
            quarter += 1
    return starts


def _local(quarter: int, zone: tzinfo) -> datetime:
    return from_micros(quarter * QUARTER_HOUR).astimezone(zone)


def _counts(before: Row, after: Row) -> Row:
    """Return the difference of two running totals."""
    counts = after if before is _ZERO else tuple(map(sub, after, before))
    calls, *tokens, cost, priced, unknown, estimated, actual = counts
    certainty = 0 if unknown else 1 if estimated else 2 if actual else 3
    return (calls, *tokens, cost if priced else None, certainty)
