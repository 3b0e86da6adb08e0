"""Turns that wait for an approval: their step is stored, and none of its calls has run.

A waiting turn has no lease and stays the open turn of its session. It ends in one of two ways: when
all its calls were answered it is entered again, on any node (`TurnControl` with `resumes`); or it
is declined as a whole, because a person wrote something else, sent /stop, or did not answer in
time (decision 0032).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from tertulia.core.approval import digest_call
from tertulia.core.message import TOOL, ToolCall, draft, to_json
from tertulia.core.source import Source
from tertulia.records import approval_rows, session_rows
from tertulia.records.approval_questions import AskedCall
from tertulia.records.queues import outbox
from tertulia.records.store_context import StoreContext
from tertulia.records.transcript.log import Entry, add_messages
from tertulia.records.turns.interrupted import OpenCall, open_calls
from tertulia.records.turns.lease import TurnRef
from tertulia.storage.base import Transaction
from tertulia.storage.rows import SessionRow, to_micros

WROTE_INSTEAD: Final = "the person wrote something else instead of approving it"
_TOLD_INSTEAD: Final = "You wrote something else, so I did not run:"
_CHANGED: Final = "the call was changed after it was asked for"


class Suspension(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored when a turn begins to wait.

    seconds        how long it waits
    requester      the person whose turn it is
    is_once_only   whether its calls can only be approved once
    target         where the answer is delivered later; None: nowhere
    asked_in       the target of the questions
    replaces       the draft in the chat that the first question replaces
    """

    requests: tuple[AskedCall, ...]
    seconds: float
    requester: str
    is_once_only: bool = False
    target: str | None = "origin"
    asked_in: str = "origin"
    replaces: str | None = None


class AnsweredCall(msgspec.Struct, frozen=True):
    """A call of a turn that continues; with a reason it was declined, and is not run."""

    call: ToolCall
    declined: str | None = None


class SuspendTurn(NamedTuple):
    """The part of the transaction that makes a turn wait."""

    context: StoreContext
    turn: TurnRef
    key: str
    source: Source
    message_id: str
    suspension: Suspension
    questions: Sequence[Sequence[outbox.Delivery]]
    now: datetime

    def store(self, tx: Transaction) -> None:
        """Store a row for each call and put the questions into the outbox."""
        suspension, now = self.suspension, to_micros(self.now)
        shared: dict[str, Any] = {
            "batch": suspension.requests[0].code,
            "session": self.turn.ref,
            "turn": self.turn.number,
            "session_id": self.turn.session_id,
            "key": self.key,
            "requester": suspension.requester,
            "origin": to_json(self.source.to_dict()),
            "message_id": self.message_id,
            "target": suspension.target,
            "asked_in": suspension.asked_in,
            "is_once_only": int(suspension.is_once_only),
            "now": now,
            "lifetime": round(suspension.seconds * 1_000_000),
        }
        for request in suspension.requests:
            call = request.call
            arguments = call.arguments
            params = {
                **shared,
                "code": request.code,
                "call_id": call.id,
                "tool": call.name,
                "arguments": arguments if isinstance(arguments, str) else to_json(arguments),
                "digest": digest_call(self.turn.session_id, self.turn.number, call),
            }
            tx.run("approval_insert", params)
        for deliveries in self.questions:
            outbox.put_in(tx, deliveries, now)


def take_answers(
    tx: Transaction, row: SessionRow, turn: int, batch: str
) -> list[AnsweredCall] | None:
    """Mark the approved calls of a waiting turn as used, and return all its calls.

    Return None while a call is still to be answered, or if the turn waits for another batch.
    """
    approvals = [
        approval_rows.to_approval(columns)
        for columns in tx.all("approvals_of_batch", {"batch": batch})
    ]
    states = {approval.state for approval in approvals}
    if not states or not states <= {"approved", "declined"}:
        return None
    used: dict[str, str] = dict(tx.all("approvals_use", {"batch": batch}))
    by_call = {approval.call_id: approval for approval in approvals}
    answered: list[AnsweredCall] = []
    for call_id, name, arguments in open_calls(tx, row.ref, row.last_seq, turn):
        call = ToolCall(call_id, name, arguments)
        approval = by_call.get(call_id)
        declined = None
        if approval is not None and call_id not in used:
            declined = approval.reason or "no reason was given"
        elif approval is not None and used[call_id] != digest_call(row.id, turn, call):
            declined = _CHANGED
        answered.append(AnsweredCall(call, declined))
    return answered


def decline_waiting(
    tx: Transaction,
    context: StoreContext,
    row: SessionRow,
    now: datetime,
    reason: str,
    *,
    state: str = "declined",
    notice: str | None = None,
) -> tuple[int, list[approval_rows.Approval]]:
    """Decline the calls of a waiting turn and close it.

    Return the last sequence number, and what was waiting for an answer. With a `notice` the chat in
    which the calls were asked for is told.
    """
    assert row.open_turn is not None
    rows = session_rows.close_approvals(tx, row.ref, now, reason, state=state)
    approvals = sorted(map(approval_rows.to_approval, rows), key=lambda item: item.code)
    calls = open_calls(tx, row.ref, row.last_seq, row.open_turn)
    entries = [declined_result(call, reason, row.open_turn) for call in calls]
    micros = to_micros(now)
    last_seq = add_messages(tx, row.ref, entries, micros) if entries else row.last_seq
    params = {"ref": row.ref, "number": row.open_turn, "now": micros, "answer_seq": None}
    tx.run("turn_close", {**params, "state": "declined"})
    tx.run("session_revoke_lease", {"ref": row.ref})
    session_rows.record_event(
        tx, row.ref, now, "declined", {"turn": row.open_turn, "reason": reason}
    )
    if notice is not None:
        approval_rows.tell(tx, context, approvals, notice, now)
    return last_seq, approvals


def decline_for_message(
    tx: Transaction, context: StoreContext, row: SessionRow, now: datetime
) -> int:
    """Decline a waiting turn because of a new message; return the last sequence number."""
    last_seq, _ = decline_waiting(tx, context, row, now, WROTE_INSTEAD, notice=_TOLD_INSTEAD)
    return last_seq


def declined_text(reason: str) -> str:
    """Return the result of a call that was declined."""
    return f"declined: {reason}"


def declined_result(call: OpenCall, reason: str, turn: int) -> Entry:
    """Return the message with the result of a call that was declined."""
    message = {
        "role": TOOL,
        "tool_call_id": call.id,
        "name": call.name,
        "content": declined_text(reason),
        "declined": True,
    }
    return Entry(draft(message), None, turn)
