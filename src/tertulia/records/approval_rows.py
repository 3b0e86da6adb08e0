"""Rows of approvals within a transaction, shared by turns and by the records."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

import msgspec

from tertulia.core.approval import Scope
from tertulia.core.message import from_json
from tertulia.core.source import Source
from tertulia.records.queues import outbox
from tertulia.records.store_context import StoreContext
from tertulia.storage.base import Row, Transaction
from tertulia.storage.rows import from_micros, to_micros

ApprovalState = Literal["pending", "approved", "declined", "expired", "used"]


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call that a person has to allow before it runs.

    batch          the code of the first call that was asked together with it
    requester      the person whose turn made the call
    origin         the source of their message
    target         where the answer of the turn is delivered; None: nowhere
    asked_in       the target of the question
    is_once_only   it cannot be approved for longer: the turn contains foreign content
    expires_at     by the clock of the database
    """

    code: str
    batch: str
    session_id: str
    turn: int
    key: str
    call_id: str
    tool: str
    arguments: str
    digest: str
    requester: str
    origin: Source
    message_id: str
    target: str | None
    asked_in: str
    is_once_only: bool
    state: ApprovalState
    scope: Scope | None
    reason: str | None
    answered_by: str | None
    asked_at: datetime
    expires_at: datetime


def to_approval(row: Row) -> Approval:
    """Return the value of a row with the columns of `part_approval_columns`."""
    (code, batch, _, turn, session_id, key, call_id, tool, arguments, digest, requester, origin,
     message_id, target, asked_in, is_once_only, state, scope, reason, answered_by, asked_at,
     expires_at) = row  # fmt: skip
    return Approval(
        code=code,
        batch=batch,
        session_id=session_id,
        turn=turn,
        key=key,
        call_id=call_id,
        tool=tool,
        arguments=arguments,
        digest=digest,
        requester=requester,
        origin=Source.from_dict(from_json(origin)),
        message_id=message_id,
        target=target,
        asked_in=asked_in,
        is_once_only=bool(is_once_only),
        state=state,
        scope=scope,
        reason=reason,
        answered_by=answered_by,
        asked_at=from_micros(asked_at),
        expires_at=from_micros(expires_at),
    )


def tell(
    tx: Transaction,
    context: StoreContext,
    approvals: Sequence[Approval],
    beginning: str,
    now: datetime,
) -> None:
    """Say what became of calls, once, in the chat where they were asked for."""
    if not approvals:
        return
    first = approvals[0]
    tools = ", ".join(f"{approval.tool} ({approval.code})" for approval in approvals)
    deliveries = outbox.build_deliveries(
        context,
        f"{beginning} {tools}",
        first.asked_in,
        first.origin,
        session_id=first.session_id,
        delivery=f"declined:{first.batch}",
        is_plain=True,
    )
    outbox.put_in(tx, deliveries, to_micros(now))
