"""The usage ledger: one row per model call.

The totals of the session, and sums by quarter of an hour, platform, person and model, are updated
in the same transaction (decision 0017); the sums of past quarters become running totals. A sum adds
up both. Only the calls of a quarter that a limit divides, and sums by session, are read from the
ledger itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from tertulia.core import keys, prices, validate
from tertulia.core.arguments import checks_arguments
from tertulia.core.budget import Budget
from tertulia.core.source import Source
from tertulia.core.text.excerpt import short_repr
from tertulia.core.text.storable import storable
from tertulia.core.usage import STATUSES, Usage, from_nano, to_nano
from tertulia.errors import ConfigError
from tertulia.records import budgets, session_rows
from tertulia.records.store_context import StoreContext
from tertulia.records.transcript.log import append_messages
from tertulia.records.usage_running import (
    FIRST_QUARTER,
    QUARTER_HOUR,
    Group,
    GroupUsage,
    Kind,
    day_of,
    day_starts,
    read_span,
    read_usage,
)
from tertulia.storage.base import Params, Row, Transaction
from tertulia.storage.rows import PARSE_ERRORS, corrupt_error, to_micros

Key = TypeVar("Key")

Grouping = Literal["day", "model", "platform", "person", "session"]
GROUPINGS: tuple[Grouping, ...] = ("day", "model", "platform", "person", "session")

# The columns of one model call, for both the ledger and the totals of its session.
Charge = dict[str, Any]

_FOREVER = -FIRST_QUARTER * QUARTER_HOUR  # in microseconds


DayGrouping = Literal["model", "person", "platform"]
DAY_GROUPINGS: tuple[DayGrouping, ...] = ("model", "person", "platform")


class UsageTotal(NamedTuple):
    """How many model calls there were, and what they used together."""

    calls: int
    usage: Usage


class DayUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The usage of one day (YYYY-MM-DD) and one model, person or platform."""

    day: str
    group: str
    calls: int
    usage: Usage


class BudgetState(msgspec.Struct, frozen=True, kw_only=True):
    """A budget, and what is used of it; `share` is 1 or more when it is spent."""

    budget: Budget
    tokens: int
    cost_usd: float
    share: float


@checks_arguments
class UsageLedger:
    """Tokens and cost of the model calls of a store."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context
        self._db = context.db

    def add(self, session_id: str, usage: Usage) -> None:
        """Enter one model call; raise `NotFound` if there is no such session."""
        cost, now = charge(usage), to_micros(self._context.clock.now())

        def work(tx: Transaction) -> None:
            budgets.share_ledger_lock(tx, self._context)
            add_in(tx, session_id, cost, now)

        self._db.write(work)
        self._context.notify_indexer()

    def budgets_left(self, session_id: str, source: Source | None = None) -> list[str]:
        """Return how much is left of each budget that applies, one line each, for people.

        `source` is the person who asks; the budgets of persons apply only with it. Raises
        `NotFound` if there is no such session.
        """
        person = None if source is None else keys.person_of(source)
        now = self._context.clock.now()

        def work(tx: Transaction) -> list[str]:
            row = session_rows.require(tx, session_id)
            return budgets.describe_budgets(tx, self._context, row, person, now)

        return self._db.write(work)

    def sum(
        self, by: Grouping = "day", since: datetime | None = None, until: datetime | None = None
    ) -> dict[str, Usage]:
        """Return usage by group, from `since` on and before `until`. Days are in the store's zone.

        A sum whose `cost_status` is "unknown" contains calls without a price: its cost is the sum
        of the others, or None.
        """
        validate.choice("by", by, GROUPINGS)
        params = _range_params(_optional_micros(since, "since"), _optional_micros(until, "until"))

        def work(tx: Transaction) -> Iterator[tuple[str, Row]]:
            for group, *counts in tx.all(f"usage_sum_{by}", params):
                yield day_of(group, self._context.zone) if by == "day" else group, tuple(counts)
            if by == "day":
                for item in self._read_days(tx, "all", params):
                    yield day_of(item.start, self._context.zone), item.counts
            elif by != "session":
                for item in self._read_span(tx, by, params):
                    yield _group_name(by, item.group), item.counts

        sums = self._db.read(lambda tx: _add_up(work(tx)))
        return {name: _to_usage(counts) for name, counts in sums.items()}

    def total(
        self,
        since: datetime | None = None,
        until: datetime | None = None,
        *,
        person: str | None = None,
    ) -> UsageTotal:
        """Return how many model calls there were and what they used, of everybody or a person."""
        params = self._params(since, until, person)

        def work(tx: Transaction) -> Iterator[tuple[str, Row]]:
            recent = tx.one("usage_total", params)
            if recent is not None and recent[0]:
                yield "", recent
            kind: Kind = "all" if person is None else "person"
            for item in self._read_span(tx, kind, params):
                yield "", item.counts

        sums = self._db.read(lambda tx: _add_up(work(tx)))
        if not sums:
            return UsageTotal(0, Usage())
        return UsageTotal(sums[""][0], _to_usage(sums[""]))

    def by_day(
        self,
        by: DayGrouping = "model",
        since: datetime | None = None,
        until: datetime | None = None,
        *,
        person: str | None = None,
    ) -> list[DayUsage]:
        """Return usage for each day and group, oldest day first; days are in the store's zone."""
        validate.choice("by", by, DAY_GROUPINGS)
        params = self._params(since, until, person)
        zone = self._context.zone

        def work(tx: Transaction) -> Iterator[tuple[tuple[str, str], Row]]:
            for quarter, group, *counts in tx.all(f"usage_days_by_{by}", params):
                yield (day_of(quarter, zone), group), tuple(counts)
            for item in self._read_days(tx, by if person is None else "detail", params):
                yield (day_of(item.start, zone), _group_name(by, item.group)), item.counts

        sums = self._db.read(lambda tx: _add_up(work(tx)))
        return [
            DayUsage(day=day, group=group, calls=counts[0], usage=_to_usage(counts))
            for (day, group), counts in sums.items()
        ]

    def budgets(self) -> list[BudgetState]:
        """Return the budgets that are for one thing, with what is used of each.

        A budget for each person, platform or session has as many states as there are of them, and
        is left out.
        """
        chosen = [
            budget
            for budget in self._context.settings.budgets
            if budget.per == "everyone"
            or (budget.only is not None and budget.per in ("person", "platform"))
        ]
        if not chosen:
            return []
        now = self._context.clock.now()
        return self._db.write(
            lambda tx: [_budget_state(tx, self._context, budget, now) for budget in chosen]
        )

    def _params(
        self, since: datetime | None, until: datetime | None, person: str | None
    ) -> dict[str, Any]:
        span = _range_params(_optional_micros(since, "since"), _optional_micros(until, "until"))
        return {**span, "person": storable(person)}

    def _read_span(self, tx: Transaction, kind: Kind, params: Params) -> Iterator[GroupUsage]:
        """Yield what each group used in the whole quarters of a range."""
        starts = [params["first_quarter"]]
        return read_usage(tx, kind, starts, params["last_quarter"], name=params.get("person"))

    def _read_days(self, tx: Transaction, kind: Kind, params: Params) -> Iterator[GroupUsage]:
        """Yield what each group used on each day, in the whole quarters of a range."""
        span = read_span(tx)
        if span is None:
            return iter(())
        first = max(span[0], params["first_quarter"])
        end = min(span[1] + 1, params["last_quarter"])
        starts = day_starts(first, end, self._context.zone)
        if not starts:
            return iter(())
        return read_usage(tx, kind, starts, end, name=params.get("person"))


def add_in(tx: Transaction, session_id: str, cost: Charge, now: int) -> None:
    """Enter one model call within a transaction; raise `NotFound` for an unknown session."""
    append_messages(tx, session_id, (), now, cost=cost)


def charge(usage: Usage) -> Charge:
    """Return the columns of a model call, its cost estimated if it was not reported."""
    if not isinstance(usage, Usage):
        raise ConfigError(
            f"usage is {short_repr(usage)}.",
            hint="Give Usage(input=812, output=64).",
            field="usage",
        )
    cost, status, source = to_nano(usage.cost_usd), usage.cost_status, usage.cost_source
    if cost is None and status is None:
        cost = prices.estimate_cost(usage)
        status = "unknown" if cost is None else "estimated"
        source = source or (None if cost is None else prices.SOURCE)
    if status is None:
        status = "actual"
    return {
        "model": storable(usage.model),
        "provider": storable(usage.provider),
        "base_url": storable(usage.base_url),
        "input": usage.input,
        "output": usage.output,
        "cache_read": usage.cache_read,
        "cache_write": usage.cache_write,
        "reasoning": usage.reasoning,
        "last_prompt": usage.last_prompt,
        "cost": cost,
        "certainty": STATUSES.index(status),
        "cost_source": storable(source),
    }


def _budget_state(
    tx: Transaction, context: StoreContext, budget: Budget, now: datetime
) -> BudgetState:
    tokens, cost = budgets.used_of(tx, context, budget, now)
    dollars = from_nano(cost) or 0.0
    shares = [
        used / limit if limit else float(used > 0)
        for used, limit in ((tokens, budget.tokens), (dollars, budget.usd))
        if limit is not None
    ]
    return BudgetState(budget=budget, tokens=tokens, cost_usd=dollars, share=max(shares))


def _group_name(by: Grouping | DayGrouping, group: Group) -> str:
    """Return the name of a group in a sum; a call may have no person, and no model."""
    name = {"model": group.model, "platform": group.platform}.get(by, group.name)
    if group.kind != "detail":
        name = group.name
    return name or {"model": "unknown", "person": "shared"}.get(by, name)


def _add_up(items: Iterable[tuple[Key, Row]]) -> dict[Key, Row]:
    """Return the sums of the counts of each group, in the order of the groups."""
    sums: dict[Key, Row] = {}
    try:
        for key, counts in items:
            before = sums.get(key)
            sums[key] = counts if before is None else _add_counts(before, counts)
        return dict(sorted(sums.items(), key=_key_of))
    except PARSE_ERRORS as problem:
        raise corrupt_error("the ledger", problem) from problem


def _key_of(item: tuple[Key, Row]) -> Any:
    return item[0]


def _add_counts(first: Row, second: Row) -> Row:
    *numbers, cost, certainty = first
    *others, other_cost, other_certainty = second
    costs = [each for each in (cost, other_cost) if each is not None]
    return (
        *(old + new for old, new in zip(numbers, others, strict=True)),
        sum(costs) if costs else None,
        min(certainty, other_certainty),
    )


def _to_usage(counts: Row) -> Usage:
    _, *tokens, cost, certainty = counts
    return Usage(*tokens, cost_usd=from_nano(cost), cost_status=STATUSES[certainty])


def _range_params(since: int | None, until: int | None) -> Params:
    """Return the whole quarters of an hour between two times, and the calls outside of them."""
    start = -_FOREVER if since is None else since
    end = _FOREVER if until is None else max(until, start)
    first, last = -(-start // QUARTER_HOUR), end // QUARTER_HOUR
    if first > last:  # both limits lie in one quarter
        first = last
        since_end, until_start = end, end
    else:
        since_end, until_start = first * QUARTER_HOUR, last * QUARTER_HOUR
    return {
        "first_quarter": first,
        "last_quarter": last,
        "since": start,
        "since_end": since_end,
        "until_start": until_start,
        "until": end,
    }


def _optional_micros(time: datetime | None, name: str) -> int | None:
    if time is None:
        return None
    validate.aware_datetime(name, time)
    return to_micros(time)
