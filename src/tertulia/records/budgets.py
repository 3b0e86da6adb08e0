"""Budgets: refuse a turn when a spending limit is reached."""

from __future__ import annotations

from datetime import datetime

from tertulia.core.budget import Budget
from tertulia.core.usage import NANO
from tertulia.errors import BudgetExceeded
from tertulia.records.store_context import StoreContext
from tertulia.storage import installation
from tertulia.storage.base import Transaction
from tertulia.storage.rows import SessionRow, from_micros

_BATCH = 1000  # rows of the ledger that are read at a time
# A lock: shared by transactions that write to the ledger, exclusive for those that add it up.
LEDGER = "ledger"


def require_budget(
    tx: Transaction, context: StoreContext, row: SessionRow, person: str | None, now: datetime
) -> None:
    """Raise `BudgetExceeded` if a budget that applies to this session is spent."""
    for budget in context.settings.budgets:
        if _applies(budget, row, person):
            tokens, cost = _read_used(tx, context, budget, row, person, now)
            limit = budget.reached_limit(tokens, cost / NANO)
            if limit is not None:
                raise BudgetExceeded(
                    f"The budget is spent: {limit} ({_scope_text(budget)}).",
                    hint=_hint(budget),
                    per=budget.per,
                    period=budget.period,
                )


def describe_budgets(
    tx: Transaction, context: StoreContext, row: SessionRow, person: str | None, now: datetime
) -> list[str]:
    """Return one line for each budget that applies to this session: how much of it is left."""
    lines = []
    for budget in context.settings.budgets:
        if _applies(budget, row, person):
            tokens, cost = _read_used(tx, context, budget, row, person, now)
            rest = budget.describe_rest(tokens, cost / NANO)
            lines.append(f"{_scope_text(budget)}: {rest} left")
    return lines


def _applies(budget: Budget, row: SessionRow, person: str | None) -> bool:
    if budget.only is None:
        return budget.per != "person" or person is not None
    return budget.only == {"person": person, "platform": row.platform, "session": row.id}.get(
        budget.per, budget.only
    )


def _read_used(
    tx: Transaction,
    context: StoreContext,
    budget: Budget,
    row: SessionRow,
    person: str | None,
    now: datetime,
) -> tuple[int, int]:
    """Return the tokens and the cost (in billionths of a dollar) that count for a budget."""
    if budget.per == "session":
        return row.input + row.output + row.cache_read + row.cache_write, row.cost or 0
    return _read_spending(tx, context, budget, now, platform=row.platform, person=person)


def used_of(
    tx: Transaction, context: StoreContext, budget: Budget, now: datetime
) -> tuple[int, int]:
    """Return the tokens and the cost of a budget that is for everyone, or for `only` one."""
    return _read_spending(tx, context, budget, now, platform=budget.only, person=budget.only)


def _read_spending(
    tx: Transaction,
    context: StoreContext,
    budget: Budget,
    now: datetime,
    *,
    platform: str | None,
    person: str | None,
) -> tuple[int, int]:
    """Return the tokens and the cost in the period of a budget, of whom it is for."""
    add_new_usage(tx, context)
    sums = tx.one(
        "spending_sum",
        {
            "since": _first_day(budget, now.astimezone(context.zone)),
            "platform": platform if budget.per == "platform" else None,
            "person": person if budget.per == "person" else None,
        },
    )
    assert sums is not None
    return int(sums[0]), int(sums[1])


def share_ledger_lock(tx: Transaction, context: StoreContext) -> None:
    """Take the shared ledger lock if there are budgets; call this before writing to the ledger."""
    if context.settings.budgets:
        tx.lock(LEDGER, shared=True)


def add_new_usage(tx: Transaction, context: StoreContext) -> None:
    """Add the ledger rows since the last budget check to the sums; each row is added only once."""
    # Waits for transactions that have taken a ledger id and not committed yet: rows are added in
    # the order of their ids, so a row that appeared later with a lower id would never be added.
    tx.lock(LEDGER)
    last_id = int(installation.get(tx, "spending_upto") or 0)
    while rows := tx.all("usage_since", {"after": last_id, "limit": _BATCH}):
        for id_, at, platform, person, tokens, cost in rows:
            day = from_micros(at).astimezone(context.zone).toordinal()
            spending = {"day": day, "tokens": tokens, "cost": cost}
            tx.run("spending_add", {**spending, "platform": platform, "person": person})
            last_id = id_
        installation.put(tx, "spending_upto", str(last_id))


def _first_day(budget: Budget, local: datetime) -> int:
    """Return the number of the day on which the period of a budget began."""
    if budget.period == "day":
        return local.toordinal()
    return local.replace(day=1).toordinal() if budget.period == "month" else 0


def _hint(budget: Budget) -> str:
    if budget.per == "session":
        return "A new session starts at zero; the owner can raise the budget."
    if budget.period == "ever":
        return "The owner can raise the budget."
    return f"It starts at zero with the next {budget.period}; the owner can raise the budget."


def _scope_text(budget: Budget) -> str:
    if budget.per == "session":
        return "this session"
    scope = "everyone together" if budget.per == "everyone" else f"this {budget.per}"
    return scope if budget.period == "ever" else f"{scope}, this {budget.period}"
