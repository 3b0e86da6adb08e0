"""Approvals: tool calls that wait for a person's decision, and approvals that stay in force.

pending → approved → used       it was run once, whether it succeeded or failed
        → declined              somebody denied it, or the turn no longer waits for it
        → expired               nobody answered in time

The first answer counts: it changes a row that is pending, has not expired by the clock of the
database, and is of the same call. When the last call of a turn is answered, the same transaction
puts an item into the inbox, by which any node continues the turn.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from tertulia.core.approval import Grant, Scope, arguments_of, grant_command
from tertulia.core.arguments import checks_arguments
from tertulia.core.message import ToolCall
from tertulia.core.text.storable import storable
from tertulia.errors import AccessDenied, IllegalMove, NotFound
from tertulia.records import session_rows
from tertulia.records.approval_questions import close_question
from tertulia.records.approval_rows import Approval, to_approval
from tertulia.records.queues import inbox, outbox
from tertulia.records.queues.base import check_limit
from tertulia.records.store_context import StoreContext
from tertulia.records.turns.waiting import decline_waiting
from tertulia.storage.base import Row, Transaction
from tertulia.storage.rows import to_micros

_EXPIRED: Final = "nobody approved it in time"
_TOLD_EXPIRED: Final = "Nobody answered in time, so I did not run:"


@checks_arguments
class Approvals:
    """The calls of a store that wait for an approval."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context
        self._db = context.db

    def get(self, code: str) -> Approval | None:
        """Return the call with that code, or None."""
        row = self._db.read(lambda tx: tx.one("approval_get", {"code": code.upper()}))
        return None if row is None else to_approval(row)

    def require(self, code: str) -> Approval:
        """Return the call with that code; raise `NotFound` if there is none."""
        approval = self.get(code)
        if approval is None:
            raise NotFound(
                "There is no call with this code.", hint="/approvals lists those that wait."
            )
        return approval

    def find(self, *, person: str | None = None, limit: int = 100) -> list[Approval]:
        """Return the calls that wait for an answer, of one person or of all."""
        check_limit(limit)
        params = {"limit": limit, "person": person}
        return [
            to_approval(row) for row in self._db.read(lambda tx: tx.all("approvals_find", params))
        ]

    def of_batch(self, batch: str) -> list[Approval]:
        """Return the calls that were asked for together, by the same turn."""
        rows = self._db.read(lambda tx: tx.all("approvals_of_batch", {"batch": batch}))
        return [to_approval(row) for row in rows]

    def approve(
        self, code: str, *, by: str, scope: Scope = "once", is_owner: bool = False
    ) -> Approval:
        """Allow a call, and return it; the requester may do so, and an owner.

        With the scope `session` or `always` further calls are allowed too: of the tool, or of the
        same command of `terminal`. Raise `NotFound`, `AccessDenied`, and `IllegalMove` if it was
        answered already, has expired, or can only be allowed once.
        """
        approval = self._require_for(code, by, is_owner=is_owner)
        if approval.is_once_only and scope != "once":
            raise IllegalMove(
                "This call can only be approved once, because the turn contains foreign content.",
                hint=f"Send: /approve {approval.code} once",
            )
        return self._answer(approval, "approved", by=by, scope=scope, reason=None)

    def deny(
        self, code: str, *, by: str, reason: str | None = None, is_owner: bool = False
    ) -> Approval:
        """Decline a call, and return it; the model is given the reason.

        Raise as `approve` does.
        """
        approval = self._require_for(code, by, is_owner=is_owner)
        return self._answer(
            approval, "declined", by=by, scope=None, reason=storable(reason or "the person said no")
        )

    def decline(self, session_id: str, reason: str) -> list[Approval]:
        """Decline every call that waits in a session, and close its turn; return the calls.

        Raise `NotFound` if there is no such session.
        """
        lane = session_rows.lane_of(self._db.read(lambda tx: _require_key(tx, session_id)))
        now = self._context.clock.now()

        def work(tx: Transaction) -> list[Approval]:
            row = session_rows.require(tx, session_id)
            if not session_rows.has_waiting_turn(tx, row):
                return []
            return decline_waiting(tx, self._context, row, now, reason)[1]

        return self._db.write(work, lane=lane)

    def expire(self, limit: int = 100) -> int:
        """Decline turns whose calls nobody answered in time, notify the chats; return how many."""
        check_limit(limit)
        rows = self._db.read(lambda tx: tx.all("approvals_due", {"limit": limit}))
        due = {approval.session_id: approval for approval in map(to_approval, rows)}
        return sum(self._expire(approval) for approval in due.values())

    def grants(self, person: str, *, session_id: str | None = None) -> list[Grant]:
        """Return a person's approvals that stay in force, for a session or for all sessions.

        Without a session, return those of every session.
        """
        params = {"person": person, "session_id": session_id}
        return [_to_grant(row) for row in self._db.read(lambda tx: tx.all("grants_of", params))]

    def revoke(self, grant_id: int, *, person: str | None = None) -> None:
        """Take back an approval that stays in force; with `person`, only if it is theirs.

        Raise `NotFound` if there is no such approval.
        """
        params = {"id": grant_id, "person": person}
        if not self._db.write(lambda tx: tx.changed("grant_delete", params)):
            raise NotFound(f"There is no approval {grant_id}.", hint="/approvals lists them.")

    # -- private

    def _require_for(self, code: str, person: str, *, is_owner: bool) -> Approval:
        approval = self.require(code)
        if not is_owner and approval.requester != person:
            raise AccessDenied(
                "This call is not yours to answer; nothing was changed.",
                hint="The person who asked for it can, or the owner.",
            )
        return approval

    def _answer(
        self, approval: Approval, state: str, *, by: str, scope: Scope | None, reason: str | None
    ) -> Approval:
        now = self._context.clock.now()
        params = {
            "code": approval.code,
            "digest": approval.digest,
            "state": state,
            "scope": scope,
            "reason": reason,
            "person": by,
            "now": to_micros(now),
        }

        def work(tx: Transaction) -> Approval:
            row = tx.one("approval_answer", params)
            if row is None:
                return _require_same_answer(tx, approval, state, by)
            answered = to_approval(row)
            close_question(tx, answered, now)
            if scope in ("session", "always"):
                self._insert_grant(tx, answered, scope, by, now)
            batch = tx.all("approvals_of_batch", {"batch": answered.batch})
            if all(to_approval(row).state != "pending" for row in batch):
                inbox.put_resume(
                    tx,
                    self._context,
                    answered.origin,
                    answered.key,
                    answered.message_id,
                    batch=answered.batch,
                )
            return answered

        answered = self._db.write(work, lane=session_rows.lane_of(approval.key))
        self._db.notify(inbox.CHANNEL)
        self._db.notify(outbox.CHANNEL)
        return answered

    def _insert_grant(
        self, tx: Transaction, approval: Approval, scope: Scope, by: str, now: datetime
    ) -> None:
        call = ToolCall(approval.call_id, approval.tool, approval.arguments)
        params = {
            "person": approval.requester,
            "session_id": approval.session_id if scope == "session" else None,
            "tool": approval.tool,
            "command": storable(grant_command(approval.tool, arguments_of(call) or {})),
            "now": to_micros(now),
            "granted_by": by,
        }
        tx.run("grant_insert", params)

    def _expire(self, approval: Approval) -> bool:
        """Close the turn of a call that has expired, unless it was answered meanwhile."""
        now = self._context.clock.now()

        def work(tx: Transaction) -> bool:
            row = session_rows.get(tx, approval.session_id)
            is_due = tx.one("approval_is_due", {"code": approval.code}) is not None
            if row is None or not is_due:
                return False
            if row.open_turn == approval.turn and session_rows.has_waiting_turn(tx, row):
                decline_waiting(
                    tx,
                    self._context,
                    row,
                    now,
                    _EXPIRED,
                    state="expired",
                    notice=_TOLD_EXPIRED,
                )
            else:
                session_rows.close_approvals(tx, row.ref, now, _EXPIRED, state="expired")
            return True

        is_expired = self._db.write(work, lane=session_rows.lane_of(approval.key))
        self._db.notify(outbox.CHANNEL)
        return is_expired


def _require_same_answer(tx: Transaction, approval: Approval, state: str, by: str) -> Approval:
    """Return an approval that the same person has answered the same way before.

    So a command that is run again after a crash has the same reply. Raise `IllegalMove` for any
    other answer.
    """
    row = tx.one("approval_get", {"code": approval.code})
    current = approval if row is None else to_approval(row)
    answers = ("approved", "used") if state == "approved" else ("declined",)
    if current.state in answers and current.answered_by == by:
        return current
    words = {
        "approved": "was approved already",
        "used": "was approved and has run already",
        "declined": "was declined already",
    }
    fate = words.get(current.state, "has expired")
    raise IllegalMove(f"{approval.tool} ({approval.code}) {fate}; nothing was changed.")


def _require_key(tx: Transaction, session_id: str) -> str:
    return session_rows.require(tx, session_id).key


def _to_grant(row: Row) -> Grant:
    id_, person, tool, command, session_id = row
    return Grant(id=id_, person=person, tool=tool, command=command, session_id=session_id)
