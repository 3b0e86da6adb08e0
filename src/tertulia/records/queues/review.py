"""Review of the queues: entries that need a person, newest first and by problem; settle by hand.

Counts and groups come from the newest entries of each state, up to a limit: a longer queue needs
attention, whatever its exact length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Final, Literal, TypeVar

import msgspec

from tertulia.core import validate
from tertulia.core.arguments import checks_arguments
from tertulia.core.message import from_json
from tertulia.core.session import Page
from tertulia.core.text.storable import storable
from tertulia.errors import ConfigError, IllegalMove, NotFound, StaleWrite
from tertulia.records.newest_pages import page_params, to_page
from tertulia.records.queues import base, inbox
from tertulia.records.queues.inbox import Inbox, InboxItem, InboxState
from tertulia.records.queues.outbox import (
    Delivery,
    DeliveryState,
    Outbox,
    to_delivery,
)
from tertulia.records.store_context import StoreContext
from tertulia.storage.base import Params, Row, Transaction
from tertulia.storage.rows import from_micros, to_micros

Reviewed = TypeVar("Reviewed", Delivery, InboxItem)

SETTLE_LIMIT: Final = 500

QueueName = Literal["inbox", "outbox"]
DeliveryOutcome = Literal["sent", "retry", "dead"]
MessageOutcome = Literal["retry", "done"]
_OPEN_DELIVERIES: Final = ("unknown", "dead")
_OPEN_MESSAGES: Final = ("waiting", "dead")


class QueueCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many entries of a queue are in a state; `is_more`: there are more than were counted."""

    queue: QueueName
    state: str
    count: int
    is_more: bool


class QueueGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Entries of one state with the same platform and problem, among the newest that were counted.

    `problem` is its beginning, as much as fits into an entry of an index, to filter by; "" if there
    is none.
    """

    queue: QueueName
    state: str
    platform: str
    problem: str
    count: int
    newest_id: int
    newest_at: datetime
    oldest_at: datetime


class QueueOverview(msgspec.Struct, frozen=True):
    """The entries that are not settled well: counts by state, and groups, newest first."""

    counts: tuple[QueueCount, ...]
    groups: tuple[QueueGroup, ...]


class ProblemCounts(msgspec.Struct, frozen=True):
    """How many deliveries are unknown and dead, messages unanswered, and strangers asking."""

    unknown: int = 0
    undelivered: int = 0
    unanswered: int = 0
    pairings: int = 0


class SettledCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many messages were answered, and how many given up; `is_more`: there are more."""

    answered: int
    failed: int
    is_more: bool


class SettleReport(msgspec.Struct, frozen=True, kw_only=True):
    """How many entries were settled, and the ids of those that had changed and stayed as they are.

    `is_more`: there were more than one call settles.
    """

    settled: int
    changed: tuple[int, ...]
    is_more: bool


@checks_arguments
class QueueReview:
    """The queues of a store, for a person who looks after them."""

    def __init__(self, context: StoreContext, accepted: Inbox, deliveries: Outbox) -> None:
        self._context = context
        self._db = context.db
        self._inbox = accepted
        self._outbox = deliveries

    def overview(self, *, limit: int = 1000) -> QueueOverview:
        """Return counts and groups of entries that are unknown, dead, waiting or in progress."""
        base.check_limit(limit)

        def work(tx: Transaction) -> QueueOverview:
            counts: list[QueueCount] = []
            groups: list[QueueGroup] = []
            unsorted = tx.all("queues_overview", {"limit": limit + 1})
            entries = sorted(unsorted, key=lambda row: -row[1])  # newest first
            for queue, state in _REVIEWED:
                rows = [row[1:5] for row in entries if (row[0], row[5]) == (queue, state)]
                counts.append(
                    QueueCount(
                        queue=queue, state=state, count=min(len(rows), limit),
                        is_more=len(rows) > limit,
                    )
                )  # fmt: skip
                groups += _group(queue, state, rows[:limit])
            return QueueOverview(tuple(counts), tuple(groups))

        return self._db.read(work)

    def count_problems(self, *, limit: int = 1000) -> ProblemCounts:
        """Return how much waits for a person, each count up to `limit`."""
        base.check_limit(limit)
        params = {"limit": limit, "now": to_micros(self._context.clock.now())}
        return ProblemCounts(
            *(self._db.read(lambda tx: tx.one("queues_count_problems", params)) or ())
        )

    def count_settled(self, since: datetime, *, limit: int = 1000) -> SettledCount:
        """Return how many messages that were received since a time are settled, and how."""
        base.check_limit(limit)
        params = {"since": to_micros(since), "limit": limit + 1}
        count, failed = self._db.read(lambda tx: tx.one("inbox_count_settled", params)) or (0, 0)
        answered = min(count - failed, limit)
        return SettledCount(answered=answered, failed=failed, is_more=count > limit)

    def deliveries(
        self,
        *,
        state: DeliveryState | None = None,
        platform: str | None = None,
        problem: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Delivery]:
        """Return a page of deliveries, newest first.

        Those that are unknown or dead can be chosen by `platform` and `problem`, as `overview`
        groups them.
        """
        filters = {"state": state, "platform": storable(platform), "problem": storable(problem)}
        statement = _statement("outbox", state, platform, problem, _OPEN_DELIVERIES)
        return self._page(limit, cursor, statement, filters, to_delivery)

    def messages(
        self,
        *,
        state: InboxState | None = None,
        problem: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[InboxItem]:
        """Return a page of accepted messages, newest first; dead ones also by `problem`."""
        filters = {"state": state, "problem": storable(problem)}
        statement = _statement("inbox", state, None, problem, ("dead",))
        return self._page(limit, cursor, statement, filters, inbox.to_item)

    def open_deliveries(self, *, limit: int = 50) -> list[Delivery]:
        """Return the newest `limit` deliveries of each state: unknown, dead, waiting or sending."""
        base.check_limit(limit)
        rows = self._db.read(lambda tx: tx.all("outbox_newest_open", {"limit": limit}))
        states = [state for queue, state in _REVIEWED if queue == "outbox"]
        return sorted(map(to_delivery, rows), key=lambda each: (states.index(each.state), -each.id))

    def open_messages(self, *, limit: int = 50) -> list[InboxItem]:
        """Return the newest `limit` messages of each state: dead, waiting, being answered."""
        base.check_limit(limit)
        rows = self._db.read(lambda tx: tx.all("inbox_newest_open", {"limit": limit}))
        states = [state for queue, state in _REVIEWED if queue == "inbox"]
        return sorted(
            map(inbox.to_item, rows), key=lambda item: (states.index(item.state), -item.id)
        )

    def require_delivery(self, number: int) -> Delivery:
        """Return a delivery by its number; raise `NotFound` if there is none."""
        return to_delivery(self._require("outbox", "delivery", number))

    def require_message(self, number: int) -> InboxItem:
        """Return an accepted message by its number; raise `NotFound` if there is none."""
        return inbox.to_item(self._require("inbox", "accepted message", number))

    def settle_delivery(
        self, number: int, outcome: DeliveryOutcome, *, by: str | None = None
    ) -> Delivery:
        """Settle a delivery that is unknown or dead: it was sent, is sent again, or given up.

        Raise `NotFound`, `IllegalMove` in another state, `StaleWrite` if it was settled meanwhile.
        """
        return self._settle_delivery(self.require_delivery(number), outcome, by)

    def settle_message(
        self, number: int, outcome: MessageOutcome, *, by: str | None = None
    ) -> None:
        """Answer a dead message once more ("retry"), or settle one without an answer ("done").

        Raise `NotFound`, `IllegalMove` in another state, `StaleWrite` if it was settled meanwhile.
        """
        self._settle_message(self.require_message(number), outcome, by)

    def settle_deliveries(
        self,
        outcome: DeliveryOutcome,
        *,
        ids: Sequence[int] | None = None,
        state: DeliveryState = "dead",
        platform: str | None = None,
        problem: str | None = None,
        by: str | None = None,
    ) -> SettleReport:
        """Settle many deliveries, each for itself: these `ids`, else the newest of a group.

        A delivery that has changed meanwhile stays as it is, and is reported.
        """
        page: Page[Delivery] | None = None
        if ids is None:
            validate.choice("state", state, _OPEN_DELIVERIES)
            page = self.deliveries(
                state=state, platform=platform, problem=problem, limit=SETTLE_LIMIT
            )
        return _settle_all(
            page, ids, self.require_delivery, lambda item: self._settle_delivery(item, outcome, by)
        )

    def settle_messages(
        self,
        outcome: MessageOutcome,
        *,
        ids: Sequence[int] | None = None,
        problem: str | None = None,
        by: str | None = None,
    ) -> SettleReport:
        """Do the same for accepted messages: these `ids`, else the newest dead ones."""
        page: Page[InboxItem] | None = None
        if ids is None:
            page = self.messages(state="dead", problem=problem, limit=SETTLE_LIMIT)
        return _settle_all(
            page, ids, self.require_message, lambda item: self._settle_message(item, outcome, by)
        )

    # -- private

    def _settle_delivery(
        self, delivery: Delivery, outcome: DeliveryOutcome, by: str | None
    ) -> Delivery:
        _check_open("delivery", delivery.state, _OPEN_DELIVERIES)
        if outcome == "sent":
            return self._outbox.done(delivery)
        return self._outbox.failed(delivery, _by_hand(by), outcome=outcome)

    def _settle_message(self, item: InboxItem, outcome: MessageOutcome, by: str | None) -> None:
        _check_open("message", item.state, ("dead",) if outcome == "retry" else _OPEN_MESSAGES)
        if item.state == "waiting":
            self._inbox.dismiss(item)
            return
        state = "waiting" if outcome == "retry" else "done"
        params = {
            "id": item.id, "attempts": item.attempts, "state": state, "problem": _by_hand(by),
            "now": to_micros(self._context.clock.now()),
        }  # fmt: skip

        def work(tx: Transaction) -> None:
            if tx.changed("inbox_settle_dead", params) == 0:
                raise StaleWrite(
                    "The message was settled meanwhile.", hint="Look at it again, then decide."
                )
            inbox.QUEUE.promote(tx, inbox.lane_columns(item))

        self._db.write(work, lane=inbox.lane_of(item))
        self._db.notify(inbox.CHANNEL)

    def _require(self, queue: QueueName, noun: str, number: int) -> Row:
        validate.integer("number", number, 0)
        row = self._db.read(lambda tx: tx.one(f"{queue}_by_id", {"id": number}))
        if row is None:
            raise NotFound(f"There is no {noun} {number}.")
        return row

    def _page(
        self,
        limit: int,
        cursor: str | None,
        statement: str,
        filters: Params,
        convert: Callable[[Row], Reviewed],
    ) -> Page[Reviewed]:
        params = {**filters, **page_params(limit, cursor)}
        rows = self._db.read(lambda tx: tx.all(statement, params))
        return to_page(rows, limit, convert)


_REVIEWED: Final[tuple[tuple[QueueName, str], ...]] = (
    ("outbox", "unknown"),
    ("outbox", "dead"),
    ("inbox", "dead"),
    ("outbox", "waiting"),
    ("outbox", "sending"),
    ("inbox", "waiting"),
    ("inbox", "taken"),
)


# Each choice of filters has its statement, and each statement its index.
_BY_STATE: Final = {
    ("outbox", False): "outbox_newest_entries",
    ("outbox", True): "outbox_newest_by_state",
    ("inbox", False): "inbox_newest_entries",
    ("inbox", True): "inbox_newest_by_state",
}
_BY_PLATFORM: Final = {
    "unknown": "outbox_unknown_of_platform",
    "dead": "outbox_dead_of_platform",
}
_BY_PROBLEM: Final = {
    ("outbox", "unknown"): "outbox_unknown_by_problem",
    ("outbox", "dead"): "outbox_dead_by_problem",
    ("inbox", "dead"): "inbox_dead_by_problem",
}


def _statement(
    queue: QueueName,
    state: str | None,
    platform: str | None,
    problem: str | None,
    by_problem: Sequence[str],
) -> str:
    """Return the statement for a choice of filters; raise `ConfigError` if there is none."""
    if platform is None and problem is None:
        return _BY_STATE[queue, state is not None]
    if state is None or state not in by_problem:
        raise ConfigError(
            f"Entries can be chosen by platform and problem if they are {' or '.join(by_problem)}.",
            hint=f"Give state={by_problem[-1]}.",
            field="state",
        )
    if problem is None:
        return _BY_PLATFORM[state]
    if queue == "outbox" and platform is None:
        raise ConfigError(
            "A problem is one of a platform.", hint="Give the platform too.", field="platform"
        )
    return _BY_PROBLEM[queue, state]


def _settle_all(
    page: Page[Reviewed] | None,
    ids: Sequence[int] | None,
    require: Callable[[int], Reviewed],
    settle: Callable[[Reviewed], Any],
) -> SettleReport:
    """Settle the entries of a page, or those with these ids; return what became of them."""
    settled, changed = 0, []
    items: Iterable[Reviewed | int] = (
        page.items if page is not None else list(ids or ())[:SETTLE_LIMIT]
    )
    for item in items:
        number = item if isinstance(item, int) else item.id
        try:
            settle(require(item) if isinstance(item, int) else item)
            settled += 1
        except (StaleWrite, IllegalMove, NotFound):
            changed.append(number)
    is_more = page.next is not None if page is not None else len(ids or ()) > SETTLE_LIMIT
    return SettleReport(settled=settled, changed=tuple(changed), is_more=is_more)


def _group(queue: QueueName, state: str, rows: Sequence[Row]) -> list[QueueGroup]:
    """Return the groups of rows that come newest first, in the order of their newest entries."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        _, platform, problem, _ = row
        name = platform if queue == "outbox" else str(from_json(platform).get("platform", ""))
        groups.setdefault((name, problem), []).append(row)
    return [
        QueueGroup(
            queue=queue,
            state=state,
            platform=platform,
            problem=problem,
            count=len(entries),
            newest_id=entries[0][0],
            newest_at=from_micros(entries[0][3]),
            oldest_at=from_micros(entries[-1][3]),
        )
        for (platform, problem), entries in groups.items()
    ]


def _check_open(noun: str, state: str, allowed: Sequence[str]) -> None:
    if state not in allowed:
        raise IllegalMove(
            f"The {noun} is {state}.",
            hint=f"Only a {noun} that is {' or '.join(allowed)} can be settled so.",
        )


def _by_hand(by: str | None) -> str:
    return "settled by hand" if by is None else f"settled by hand ({by})"
