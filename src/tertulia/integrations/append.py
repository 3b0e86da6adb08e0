"""Appending to a conversation without a turn, for SDKs that pass entries after the fact.

One call is one transaction. A message may have marks that find it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any, NamedTuple

from tertulia.core.message import USER, Draft, draft
from tertulia.core.source import Source
from tertulia.records import session_rows
from tertulia.records.sessions.open import NeedsGuard, OpenSession
from tertulia.records.store_context import StoreContext
from tertulia.records.transcript.log import insert_messages
from tertulia.records.transcript.marks import add_marks
from tertulia.storage.base import Transaction
from tertulia.storage.rows import SessionRow, to_micros


class LogLine(NamedTuple):
    """A message that is ready to be stored, and the kind of its row."""

    draft: Draft
    kind: str | None = None


def to_log_line(
    message: Mapping[str, Any], kind: str | None = None, marks: Sequence[str] = ()
) -> LogLine:
    """Return a message with its marks, ready to be stored."""
    return LogLine(add_marks(draft(message), marks), kind)


class SessionOpener(NamedTuple):
    """The values that opening a session needs before its transaction begins."""

    context: StoreContext
    source: Source
    key: str
    now: datetime
    has_processes: bool

    @classmethod
    def prepare(cls, context: StoreContext, source: Source, key: str) -> SessionOpener:
        return cls(context, source, key, context.clock.now(), context.has_processes(key))

    def open(self, tx: Transaction) -> SessionRow:
        """Return the row of the current session; open a new one if its policy has expired it."""
        attempt = OpenSession(
            self.context, self.source, self.key, self.now, False, self.has_processes
        )
        result = attempt.find(tx)
        assert not isinstance(result, NeedsGuard)  # `has_processes` already answers the guard
        return result[0]


def append_lines(
    tx: Transaction,
    session_id: str,
    lines: Sequence[LogLine],
    *,
    now: datetime,
    active_at: datetime,
) -> int:
    """Append lines and return the last sequence number. Each user message begins a turn.

    Raises `NotFound` if there is no such session.
    """
    begins_turn = [line.draft.role == USER and line.kind is None for line in lines]
    params = {
        "id": session_id,
        "count": len(lines),
        "turns": sum(begins_turn),
        "is_activity": True,
        "now": to_micros(active_at),
    }
    row = tx.one("session_append", params)
    if row is None:
        raise session_rows.session_not_found(session_id)
    ref, last_seq, turn = row[:3]
    number, seq = turn - sum(begins_turn), last_seq - len(lines)
    turns = [number := number + is_first for is_first in begins_turn]
    for kind, group in groupby(zip(lines, turns, strict=True), key=lambda pair: pair[0].kind):
        pairs = list(group)
        seq += len(pairs)
        insert_messages(
            tx,
            ref,
            seq,
            [line.draft for line, _ in pairs],
            to_micros(now),
            turns=[turn_number for _, turn_number in pairs],
            kind=kind,
        )
    return int(last_seq)
