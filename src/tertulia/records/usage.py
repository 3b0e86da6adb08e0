"""The usage ledger: one row per model call.

The totals of the session are updated in the same transaction. Sums by quarter of an hour, platform,
person and model are updated a little later (decision 0017, decision 0062); those of past quarters
become running totals. A sum adds up both and the calls that are in neither. Only the calls of a
quarter that a limit divides, and sums by session, are read from the ledger itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

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
from tertulia.records.usage_groups import Dimensions, Key, Period, read_groups
from tertulia.storage.base import Row, Transaction
from tertulia.storage.rows import to_micros

Grouping = Literal["day", "model", "platform", "person", "session"]
GROUPINGS: tuple[Grouping, ...] = ("day", "model", "platform", "person", "session")

# The columns of one model call, for both the ledger and the totals of its session.
Charge = dict[str, Any]

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


class UsageReport(msgspec.Struct, frozen=True, kw_only=True):
    """The usage of one period by several groupings; `days` is empty unless it was asked for."""

    sums: dict[Grouping, dict[str, Usage]]
    days: list[DayUsage]


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
        return self.report((by,), since, until).sums[by]

    def total(
        self,
        since: datetime | None = None,
        until: datetime | None = None,
        *,
        person: str | None = None,
    ) -> UsageTotal:
        """Return how many model calls there were and what they used, of everybody or a person."""
        counts = self._read([()], since, until, person)[()].get(())
        if counts is None:
            return UsageTotal(0, Usage())
        return UsageTotal(counts[0], _to_usage(counts))

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
        return self.report((), since, until, by_day=by, person=person).days

    def report(
        self,
        by: Sequence[Grouping],
        since: datetime | None = None,
        until: datetime | None = None,
        *,
        by_day: DayGrouping | None = None,
        person: str | None = None,
    ) -> UsageReport:
        """Return `sum` by each of `by`, and `by_day` by one group, all from the same moment.

        With `person`, only what that person used. However many groupings there are, the recent
        calls are read once and the totals of the past once; a sum by session reads the ledger.
        """
        for each in by:
            validate.choice("by", each, GROUPINGS)
        wanted: list[Dimensions] = [(each,) for each in by]
        if by_day is not None:
            wanted.append(("day", by_day))
        groups = self._read(wanted, since, until, person)
        days = {} if by_day is None else groups["day", by_day]
        return UsageReport(
            sums={
                each: {name: _to_usage(counts) for (name,), counts in groups[(each,)].items()}
                for each in by
            },
            days=[
                DayUsage(day=day, group=group, calls=counts[0], usage=_to_usage(counts))
                for (day, group), counts in days.items()
            ],
        )

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

    def _read(
        self,
        wanted: Sequence[Dimensions],
        since: datetime | None,
        until: datetime | None,
        person: str | None,
    ) -> dict[Dimensions, dict[Key, Row]]:
        period = Period.between(_optional_micros(since, "since"), _optional_micros(until, "until"))
        zone, person = self._context.zone, storable(person)
        return self._db.read(lambda tx: read_groups(tx, wanted, period, zone=zone, person=person))


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


def _to_usage(counts: Row) -> Usage:
    _, *tokens, cost, certainty = counts
    return Usage(*tokens, cost_usd=from_nano(cost), cost_status=STATUSES[certainty])


def _optional_micros(time: datetime | None, name: str) -> int | None:
    if time is None:
        return None
    validate.aware_datetime(name, time)
    return to_micros(time)
