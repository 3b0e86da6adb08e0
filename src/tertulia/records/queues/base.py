"""The mechanism of every queue: claim, wait, renew, settle, promote and find.

A queue keeps order within a *lane*: the ordering key of an entry. The lane of an inbox item is its
conversation, the lane of a delivery is its chat, the lane of a schedule run is its schedule. Only
the head of a lane can be claimed (`is_next`, decision 0009), so entries of one lane are worked off
one after the other, and entries of different lanes side by side. `Database.write(work, lane=…)` and
`Transaction.lock(lane)` take the same string: two transactions with the same lane never run at the
same time.

The inbox, the outbox and the runs of schedules are a `ClaimQueue` each; the statements are in
`storage/sql/common/queues.sql`. Memory flushes have no lanes and no states: they use only `claim`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from tertulia.core import cursor as cursors
from tertulia.core import validate
from tertulia.core.session import Page
from tertulia.core.text.excerpt import short_repr
from tertulia.core.text.storable import storable
from tertulia.errors import ConfigError, StaleWrite
from tertulia.records.store_context import FRESH_SECONDS, StoreContext
from tertulia.storage.base import Database, Params, Row, StatementLost, Step, Transaction
from tertulia.storage.rows import to_micros

MAX_LIMIT: Final = 1000
_POLL_SECONDS: Final = 1.0
# A pause that began this long after now began before the clock was set back. Less may be the
# difference between the clocks of two nodes.
_CLOCK_TOLERANCE: Final = timedelta(minutes=1)


class _Numbered(Protocol):
    @property
    def id(self) -> int: ...


class ClaimedEntry(_Numbered, Protocol):
    """An entry of a queue, claimed `attempts` times so far."""

    @property
    def attempts(self) -> int: ...


T = TypeVar("T")
N = TypeVar("N", bound=_Numbered)
C = TypeVar("C", bound=ClaimedEntry)


class ClaimQueue(msgspec.Struct, Generic[C], frozen=True, kw_only=True):
    """A queue whose entries a worker claims for a limited time and then settles.

    A claim is identified by the number of attempts: claiming an entry again raises it, and then the
    earlier claim can neither be renewed nor settled (`StaleWrite`).

    table        its table, which is the prefix of its statements
    channel      the channel of its notifications
    argument     the name of an entry's argument in public calls, for error messages
    entry_type   the type of an entry
    lane_name    returns the lane of an entry
    lane         returns the columns of that lane; None if its table does not mark heads of lanes
    stale        returns the error for a claim that was lost
    """

    table: str
    channel: str
    argument: str
    entry_type: type[C]
    lane_name: Callable[[C], str]
    lane: Callable[[C], Params] | None
    stale: Callable[[Transaction, C], StaleWrite]

    @property
    def claim_lane(self) -> str:
        """The lock of claims: they run one at a time, and each claims only the heads of lanes."""
        return f"claims of {self.table}"

    def claim(
        self,
        context: StoreContext,
        limit: int,
        lease_seconds: float,
        take: Callable[[Transaction, Params], list[C]],
    ) -> list[C]:
        """Return the entries that `take` claims, in a transaction of their own."""
        return claim(context, limit, lease_seconds, take, lane=self.claim_lane)

    def claim_together(
        self,
        context: StoreContext,
        limit: int,
        lease_seconds: float,
        steps: Callable[[Params], Sequence[Step]],
    ) -> list[list[Row]]:
        """Run the statements of a claim, in one round trip (decision 0041); return their rows.

        If the connection breaks, they run once more. Entries that the first run may have claimed
        are claimed again when their lease is over.
        """
        return run_together(
            context.db, steps(claim_params(context, limit, lease_seconds)), lane=self.claim_lane
        )

    def wait(
        self,
        context: StoreContext,
        seconds: float,
        step: Callable[[], Step] | None = None,
    ) -> bool:
        """Wait until an entry is due; return False after `seconds`.

        `step` returns the statement that checks for a due entry; the times are added here. A
        notification on the channel is only a hint: it can be missed, and entries also become due
        by time. So the statement runs at least once a second.
        """
        validate.number("seconds", seconds)
        deadline = time.monotonic() + seconds
        while True:
            notifications = context.db.notifications(self.channel)
            statement, params = (f"{self.table}_is_due", {}) if step is None else step()
            rows = context.db.query(statement, {**params, **_due_params(context)})
            if any(row[0] for row in rows):
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            context.db.wait(self.channel, notifications, min(left, _POLL_SECONDS))

    def renew(self, context: StoreContext, entry: C, lease_seconds: float) -> None:
        """Extend the lease of a claim; raise `StaleWrite` if the claim was lost."""
        self._check(entry)
        lease = lease_micros(lease_seconds)
        params = {"id": entry.id, "attempts": entry.attempts, "lease": lease}

        def work(tx: Transaction) -> None:
            if tx.changed(f"{self.table}_renew", params) == 0:
                raise self.stale(tx, entry)

        context.db.write(work, lane=self.lane_name(entry))

    def settle(self, context: StoreContext, entry: C, params: Params) -> Row:
        """Settle a claimed entry in a transaction of its own, and return its row.

        `params` are those of `settle_params`. Raise `StaleWrite` if the claim was lost.
        """
        (outcome,) = self.settle_many(context, [(entry, params)])
        if isinstance(outcome, StaleWrite):
            raise outcome
        return outcome

    def settle_many(
        self, context: StoreContext, settlements: Sequence[tuple[C, Params]]
    ) -> list[Row | StaleWrite]:
        """Settle claimed entries in one round trip; return for each its row, or how it was lost."""
        if not settlements:
            return []
        for entry, _ in settlements:
            self._check(entry)
        steps = [(f"{self.table}_settle", _with_claim(*settlement)) for settlement in settlements]
        if self.lane is not None:
            # Harmless if an entry was lost: it marks a head only where there is none.
            steps += [(f"{self.table}_promote", self.lane(entry)) for entry, _ in settlements]
        is_lost = False
        try:
            results = context.db.attempt(
                steps, lanes=[self.lane_name(entry) for entry, _ in settlements]
            )
        except StatementLost:
            results, is_lost = None, True
        settled = [[]] * len(settlements) if results is None else results[: len(settlements)]
        outcomes = [
            rows[0] if rows else self._settle_one(context, *settlement, is_lost=is_lost)
            for settlement, rows in zip(settlements, settled, strict=True)
        ]
        context.db.notify(self.channel)
        return outcomes

    def _settle_one(
        self, context: StoreContext, entry: C, params: Params, *, is_lost: bool
    ) -> Row | StaleWrite:
        """Settle one entry; return its row, or the error if the claim was lost.

        `is_lost`: it may be settled already, by a statement that got no answer.
        """

        def work(tx: Transaction) -> Row | StaleWrite:
            if is_lost:
                values = {"id": entry.id, "attempts": entry.attempts, "state": params["state"]}
                row = tx.one(f"{self.table}_settled", values)
                if row is not None:
                    return row
            try:
                return self.settle_in(tx, entry, params)
            except StaleWrite as problem:
                return problem

        return context.db.write(work, lane=self.lane_name(entry))

    def settle_in(self, tx: Transaction, entry: C, params: Params) -> Row:
        """Do the same within a transaction, and promote the next entry of the lane.

        The caller has locked the lane.
        """
        row = tx.one(f"{self.table}_settle", _with_claim(entry, params))
        if row is None:
            raise self.stale(tx, entry)
        if self.lane is not None:
            self.promote(tx, self.lane(entry))
        return row

    def promote(self, tx: Transaction, lane: Params) -> None:
        """Mark the oldest waiting entry of a lane as its head, if no entry is."""
        tx.run(f"{self.table}_promote", lane)

    def count(self, context: StoreContext, state: str, limit: int) -> int:
        """Return how many entries have a state, counted up to `limit`."""
        check_limit(limit)
        ((number,),) = context.db.query(f"{self.table}_count", {"state": state, "limit": limit})
        return int(number)

    def _check(self, entry: object) -> None:
        """Raise `ConfigError` unless the value is an entry of the type that `claim()` returns."""
        if not isinstance(entry, self.entry_type):
            raise ConfigError(
                f"{self.argument} is {short_repr(entry)}.",
                hint="Pass an entry that claim() returned.",
                field=self.argument,
            )


def claim(
    context: StoreContext,
    limit: int,
    lease_seconds: float,
    take: Callable[[Transaction, Params], list[T]],
    *,
    lane: str | None = None,
) -> list[T]:
    """Return what `take` claims in one transaction.

    Its parameters are those of `claim_params`.
    """
    params = claim_params(context, limit, lease_seconds)
    return context.db.write(lambda tx: take(tx, params), lane=lane)


def claim_params(context: StoreContext, limit: int, lease_seconds: float) -> Params:
    """Return the parameters of a claim: those of `_due_params`, lease and limit."""
    check_limit(limit)
    return {**_due_params(context), "lease": lease_micros(lease_seconds), "limit": limit}


def run_together(db: Database, steps: Sequence[Step], *, lane: str) -> list[list[Row]]:
    """Run statements that may run twice as one transaction in a lane; return the rows of each."""
    try:
        results = db.attempt(steps, lanes=[lane])
    except StatementLost:
        results = None
    return db.write(lambda tx: tx.together(steps), lane=lane) if results is None else results


def _with_claim(entry: ClaimedEntry, params: Params) -> Params:
    """Return the parameters with those that identify the claim of an entry."""
    return {**params, "id": entry.id, "attempts": entry.attempts}


def _due_params(context: StoreContext) -> dict[str, int | str | None]:
    """Return the parameters by which entries are due: times, and the node that asks."""
    now = context.clock.now()
    return {
        "now": to_micros(now),
        "future": to_micros(now + _CLOCK_TOLERANCE),
        "node": context.terminal.name,
        "node_life": round(FRESH_SECONDS * 1e6),
    }


def pause_params(now: datetime, seconds: float | None) -> dict[str, int]:
    """Return the columns of an entry that is due after a pause, or at once.

    An entry that is due at once is due by any clock: its `paused_at` is 0.
    """
    due_at = time_after(now, seconds)
    return {
        "not_before": to_micros(due_at),
        "paused_at": to_micros(now) if due_at > now else 0,
    }


def settle_params(
    context: StoreContext,
    state: str,
    *,
    problem: str | None = None,
    retry_after: float | None = None,
    **columns: Any,
) -> Params:
    """Return the new values of a settled entry; `columns` are those that only its queue has."""
    now = context.clock.now()
    return {
        "state": state,
        "problem": storable(problem),
        "now": to_micros(now),
        **pause_params(now, retry_after),
        **columns,
    }


def find(
    context: StoreContext,
    limit: int,
    cursor: str | None,
    read: Callable[[Transaction, Params], Iterable[N]],
    *,
    first: int = 0,
) -> Page[N]:
    """Return a page of at most `limit` of the entries that `read` returns, by their ids.

    Its parameters are `after`, the id before the page (`first` without a cursor), and `limit`, one
    more than the page has: then the page has a cursor for the next.
    """
    check_limit(limit)
    params = {"after": cursors.decode(cursor, 1)[0] if cursor else first, "limit": limit + 1}
    entries = context.db.read(lambda tx: list(read(tx, params)))
    has_more = len(entries) > limit
    return Page(tuple(entries[:limit]), cursors.encode(entries[limit - 1].id) if has_more else None)


def check_limit(limit: int) -> None:
    """Raise `ConfigError` unless a page or claim size is between 1 and `MAX_LIMIT`."""
    validate.integer("limit", limit, 1, MAX_LIMIT)


def lease_micros(seconds: float) -> int:
    """Return a lease time in microseconds; raise `ConfigError` unless it is above 0."""
    validate.number("lease_seconds", seconds)
    if not 0 < seconds < 1e9:
        raise ConfigError(
            f"lease_seconds is {short_repr(seconds)}.",
            hint="Give a number above 0.",
            field="lease_seconds",
        )
    return round(seconds * 1_000_000)


def time_after(now: datetime, seconds: float | None) -> datetime:
    """Return the time `seconds` after `now`, or `now` for None and for negative numbers.

    Raise `ConfigError` if there is no such time.
    """
    if seconds is not None:
        validate.number("retry_after", seconds)
    try:
        return now + timedelta(seconds=max(0, seconds or 0))
    except (OverflowError, ValueError) as problem:
        raise ConfigError(
            f"retry_after is {short_repr(seconds)}.",
            hint="Give a number of seconds.",
            field="retry_after",
        ) from problem
