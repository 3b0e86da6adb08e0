"""Turns that were left open: their calls get a result that says so, and nothing is run again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from tertulia.core.history.repair import INTERRUPTED_RESULT, build_blocks
from tertulia.core.message import INTERRUPTED, TOOL, draft
from tertulia.records import session_rows
from tertulia.records.transcript.log import Entry, add_messages
from tertulia.storage import rows
from tertulia.storage.base import Transaction
from tertulia.storage.rows import SessionRow, to_micros


class OpenCall(NamedTuple):
    """A call of a turn that has no result."""

    id: str  # as it was stored
    name: str
    arguments: str


def close_interrupted(tx: Transaction, row: SessionRow, now: datetime) -> int:
    """Close the turn that was left open in a session; return the last sequence number after it.

    Each call without a result gets one that says it was interrupted. Nothing is run again.
    """
    assert row.open_turn is not None
    session_rows.close_approvals(tx, row.ref, now, "the turn was cut off")
    entries = interrupted_results(tx, row.ref, row.last_seq, row.open_turn)
    micros = to_micros(now)
    last_seq = add_messages(tx, row.ref, entries, micros) if entries else row.last_seq
    params = {"ref": row.ref, "number": row.open_turn, "now": micros, "answer_seq": None}
    tx.run("turn_close", {**params, "state": "interrupted"})
    session_rows.record_event(
        tx, row.ref, now, "interrupted", {"turn": row.open_turn, "calls": len(entries)}
    )
    return last_seq


def revoke_open_turn(tx: Transaction, row: SessionRow, now: datetime) -> None:
    """Close the turn that was left open in a session, and its lease: it can write nothing more."""
    close_interrupted(tx, row, now)
    tx.run("session_revoke_lease", {"ref": row.ref})


def interrupted_results(tx: Transaction, ref: int, last_seq: int, turn: int) -> list[Entry]:
    """Return a result for each call of a turn that has none."""
    return [
        interrupted_result(call.id, call.name, turn) for call in open_calls(tx, ref, last_seq, turn)
    ]


def open_calls(tx: Transaction, ref: int, last_seq: int, turn: int) -> list[OpenCall]:
    """Return the calls of a turn that have no result, in their order."""
    params = {"ref": ref, "last": last_seq, "turn": turn}
    messages = [rows.message_from_row(row, tx) for row in tx.all("turn_messages", params)]
    return [
        OpenCall(
            _stored_id(block.row.body, call, block.calls),
            call["function"]["name"],
            call["function"]["arguments"],
        )
        for block in build_blocks(messages)
        for call, result in zip(block.calls, block.results, strict=True)
        if result.row is None
    ]


def interrupted_result(call_id: str, name: str, turn: int) -> Entry:
    """Return the result of a call of a turn that will never have another one."""
    message = {
        "role": TOOL,
        "tool_call_id": call_id,
        "name": name,
        "content": INTERRUPTED_RESULT,
        "interrupted": True,
    }
    return Entry(draft(message), INTERRUPTED, turn)


def _stored_id(body: dict[str, Any], call: dict[str, Any], calls: Sequence[dict[str, Any]]) -> str:
    """Return the id of a call as it was stored; repairing a history may have made it unique."""
    stored_calls = [item for item in body.get("tool_calls") or [] if isinstance(item, dict)]
    index = calls.index(call)
    call_id = stored_calls[index].get("id") if index < len(stored_calls) else None
    return call_id if isinstance(call_id, str) and call_id else call["id"]
