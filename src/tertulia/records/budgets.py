"""Whether a turn may still be paid for."""

from __future__ import annotations

from datetime import datetime

from tertulia.core.budget import Budget
from tertulia.core.usage import NANO
from tertulia.errors import BudgetExceeded
from tertulia.records.store_context import StoreContext
from tertulia.storage.base import Transaction
from tertulia.storage.rows import SessionRow, from_micros

_AT_ONCE = 1000
# Shared by whoever writes to the ledger, had alone by whoever adds it up.
LEDGER = "ledger"


def check(
    tx: Transaction, context: StoreContext, row: SessionRow, person: str | None, now: datetime
) -> None:
    """Raise `BudgetExceeded` if a limit that concerns this session is reached."""
    for budget in context.settings.budgets:
        if _concerns(budget, row, person):
            tokens, cost = _used(tx, context, budget, row, person, now)
            limit = budget.spent(tokens, cost / NANO)
            if limit is not None:
                raise BudgetExceeded(
                    f"The budget is spent: {limit} ({_words(budget)}).",
                    hint=_hint(budget),
                    per=budget.per,
                    period=budget.period,
                )


def _concerns(budget: Budget, row: SessionRow, person: str | None) -> bool:
    if budget.only is None:
        return budget.per != "person" or person is not None
    return budget.only == {"person": person, "platform": row.platform, "session": row.id}.get(
        budget.per, budget.only
    )


def _used(
    tx: Transaction,
    context: StoreContext,
    budget: Budget,
    row: SessionRow,
    person: str | None,
    now: datetime,
) -> tuple[int, int]:
    if budget.per == "session":
        return row.input + row.output + row.cache_read + row.cache_write, row.cost or 0
    bring_up_to_date(tx, context)
    found = tx.one(
        "spending_sum",
        {
            "since": _first_day(budget, now.astimezone(context.zone)),
            "platform": row.platform if budget.per == "platform" else None,
            "person": person if budget.per == "person" else None,
        },
    )
    assert found is not None
    return int(found[0]), int(found[1])


def will_spend(tx: Transaction, context: StoreContext) -> None:
    """Said before a row of the ledger is written, where budgets are."""
    if context.settings.budgets:
        tx.hold(LEDGER, shared=True)


def bring_up_to_date(tx: Transaction, context: StoreContext) -> None:
    """Add what the ledger got since a budget was asked last; each call is added once, ever."""
    tx.hold(LEDGER)  # whoever has a number of the ledger and has not committed yet is waited for
    row = tx.one("installation_get", {"name": "spending_upto"})
    upto = int(row[0]) if row else 0
    while found := tx.all("usage_since", {"after": upto, "limit": _AT_ONCE}):
        for id_, at, platform, person, tokens, cost in found:
            day = from_micros(at).astimezone(context.zone).toordinal()
            used = {"day": day, "tokens": tokens, "cost": cost}
            tx.run("spending_add", {**used, "platform": platform, "person": person})
            upto = id_
        tx.run("installation_set", {"name": "spending_upto", "value": str(upto)})


def _first_day(budget: Budget, local: datetime) -> int:
    if budget.period == "day":
        return local.toordinal()
    return local.replace(day=1).toordinal() if budget.period == "month" else 0


def _hint(budget: Budget) -> str:
    if budget.per == "session":
        return "A new session starts anew; the owner can raise it."
    if budget.period == "ever":
        return "The owner can raise it."
    return f"It starts anew with the next {budget.period}; the owner can raise it."


def _words(budget: Budget) -> str:
    if budget.per == "session":
        return "this session"
    whom = "everyone together" if budget.per == "everyone" else f"this {budget.per}"
    return whom if budget.period == "ever" else f"{whom}, this {budget.period}"
