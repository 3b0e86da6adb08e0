"""The way of one message: when it came, what it waited for, its turn, its calls, its deliveries.

Everything is read from what the parts store for themselves; nothing is written for it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import msgspec

from tertulia.core import validate
from tertulia.core.arguments import checks_arguments
from tertulia.core.usage import STATUSES, Usage, from_nano
from tertulia.errors import NotFound
from tertulia.records.queues import inbox
from tertulia.records.queues.inbox import InboxItem
from tertulia.records.queues.outbox import Delivery, to_delivery
from tertulia.records.store_context import StoreContext
from tertulia.storage.base import Row, Transaction
from tertulia.storage.rows import from_micros, to_micros

_MOST_AHEAD: Final = 100
_MOST_CALLS: Final = 200
_MOST_DELIVERIES: Final = 200
_FOREVER: Final = 2**62


class TracedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """The turn that a message began; `answer_seq` is the position of its answer."""

    session_id: str
    number: int
    state: str
    began_at: datetime
    closed_at: datetime | None
    first_seq: int
    answer_seq: int | None


class TracedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One model call of the turn."""

    at: datetime
    usage: Usage


class MessageTrace(msgspec.Struct, frozen=True, kw_only=True):
    """The way of one message from its receipt to its delivery.

    `answered_with` is the message that it was gathered into. `ahead` is how many messages of its
    conversation stand before it, up to 100. The deliveries are those that its session put in while
    the turn ran.
    """

    message: InboxItem
    answered_with: InboxItem | None
    ahead: int
    turn: TracedTurn | None
    calls: tuple[TracedCall, ...]
    deliveries: tuple[Delivery, ...]


@checks_arguments
class MessageTraces:
    """The ways of the accepted messages of a store."""

    def __init__(self, context: StoreContext) -> None:
        self._db = context.db

    def get(self, number: int) -> MessageTrace:
        """Return the way of an accepted message by its number; raise `NotFound` if none."""
        validate.integer("number", number, 0)
        return self._db.read(lambda tx: _read_trace(tx, number))


def _read_trace(tx: Transaction, number: int) -> MessageTrace:
    row = _require(tx, number)
    message = inbox.to_item(row)
    leader: Row | None = None
    if message.gathered_into is not None:
        leader = tx.one("inbox_by_id", {"id": message.gathered_into})
    turn = _read_turn(tx, (leader or row)[1])
    ahead = 0
    if message.state == "waiting":
        params = {"key": message.key, "id": message.id, "limit": _MOST_AHEAD}
        (ahead,) = tx.one("trace_ahead", params) or (0,)
    return MessageTrace(
        message=message,
        answered_with=None if leader is None else inbox.to_item(leader),
        ahead=ahead,
        turn=turn,
        calls=() if turn is None else _read_calls(tx, turn),
        deliveries=() if turn is None else _read_deliveries(tx, turn),
    )


def _read_turn(tx: Transaction, dedupe_key: str | None) -> TracedTurn | None:
    row = None if dedupe_key is None else tx.one("trace_turn", {"arrival": dedupe_key})
    if row is None:
        return None
    session_id, number, state, began_at, closed_at, first_seq, answer_seq = row
    return TracedTurn(
        session_id=session_id,
        number=number,
        state=state,
        began_at=from_micros(began_at),
        closed_at=None if closed_at is None else from_micros(closed_at),
        first_seq=first_seq,
        answer_seq=answer_seq,
    )


def _read_calls(tx: Transaction, turn: TracedTurn) -> tuple[TracedCall, ...]:
    params = {**_time_params(turn), "turn": turn.number, "limit": _MOST_CALLS}
    return tuple(_to_call(row) for row in tx.all("trace_calls", params))


def _to_call(row: Row) -> TracedCall:
    at, model, provider, *tokens, cost, certainty = row
    usage = Usage(
        *tokens, model=model, provider=provider, cost_usd=from_nano(cost),
        cost_status=STATUSES[certainty],
    )  # fmt: skip
    return TracedCall(at=from_micros(at), usage=usage)


def _read_deliveries(tx: Transaction, turn: TracedTurn) -> tuple[Delivery, ...]:
    params = {**_time_params(turn), "limit": _MOST_DELIVERIES}
    return tuple(to_delivery(row) for row in tx.all("trace_deliveries", params))


def _time_params(turn: TracedTurn) -> dict[str, Any]:
    return {
        "session_id": turn.session_id,
        "began_at": to_micros(turn.began_at),
        "closed_at": _FOREVER if turn.closed_at is None else to_micros(turn.closed_at),
    }


def _require(tx: Transaction, number: int) -> Row:
    row = tx.one("inbox_by_id", {"id": number})
    if row is None:
        raise NotFound(f"There is no accepted message {number}.", hint="GET /inbox lists them.")
    return row
