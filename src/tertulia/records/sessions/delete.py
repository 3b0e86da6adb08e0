"""Deleting a session with all its content; only its usage stays in the ledger."""

from __future__ import annotations

import hashlib
from datetime import datetime

from tertulia.core.history.view import Span
from tertulia.core.message import to_json
from tertulia.records import agent_choices, memories, search
from tertulia.records.queues import inbox, outbox
from tertulia.storage.base import Transaction
from tertulia.storage.rows import SessionRow, parse_view, to_micros


def delete_session(tx: Transaction, row: SessionRow, now: datetime) -> None:
    """Delete a session. Its forks keep their past: the messages they show become their own."""
    for (borrower,) in tx.all("borrowers_of", {"log": row.ref}):
        _copy_to_fork(tx, row, borrower)
    search.remove_session(tx, row.ref)
    session = {"session": row.ref}
    for statement in (
        "blobs_delete",
        "message_blobs_delete",
        "messages_delete",
        "revisions_delete",
        "borrowings_delete",
        "events_delete",
        "unindexed_delete",
        "memory_flush_delete",
        "imports_delete",
        "chat_chains_delete",
    ):
        tx.run(statement, session)
    inbox.delete_of_session(tx, row.ref, now)
    deleted = {"hash": _hash(row.id), "at": to_micros(now), "session": row.ref}
    tx.run("deleted_session_put", deleted)
    tx.run("approvals_delete", session)
    tx.run("grants_delete_of_session", {"session_id": row.id})
    tx.run("turns_delete", session)
    outbox.delete_of_session(tx, row.id)
    memories.delete_of_session(tx, row.id)
    agent_choices.delete_of_session(tx, row.ref)
    tx.run("occurrences_clear_session", {"session_id": row.id})
    tx.run("processes_clear", {"session_id": row.id})
    tx.run("session_clear_parent", {"id": row.id})
    tx.run("session_delete", {"ref": row.ref})


def was_deleted(tx: Transaction, session_id: str) -> bool:
    """Return whether a session that schedules ran in was deleted lately.

    It is known for as long as settled messages are kept.
    """
    return tx.one("deleted_message_get", {"hash": _hash(session_id)}) is not None


def _hash(session_id: str) -> str:
    return hashlib.sha256(f"session {session_id}".encode()).hexdigest()


def _copy_to_fork(tx: Transaction, row: SessionRow, fork: int) -> None:
    """Copy the messages a fork shows into its own log, under the same sequence numbers."""
    revisions = tx.all("revisions_of", {"session": fork})
    spans = []
    for number, ranges, *_ in revisions:
        view = parse_view(ranges)
        spans += [Span(log, first, last or 0) for log, first, last in view.ranges if log == row.ref]
        moved = to_json(view.with_log_moved(row.ref, fork).ranges)
        tx.run(
            "revision_set_ranges",
            {"session": fork, "number": number, "ranges": moved, "old": row.ref},
        )
    for span in _merge(spans):
        params = {"session": row.ref, "to": fork, "first": span.first, "last": span.last}
        tx.run("messages_copy", params)
        tx.run("message_blobs_copy", params)
        # The indexer finds messages above its watermark by itself.
        search.index_messages(tx, fork, span.first, min(span.last, search.last_indexed(tx, fork)))


def _merge(spans: list[Span]) -> list[Span]:
    """Return the same messages as spans that do not overlap."""
    merged: list[Span] = []
    for span in sorted(set(spans)):
        if merged and span.first <= merged[-1].last + 1:
            merged[-1] = Span(span.log, merged[-1].first, max(span.last, merged[-1].last))
        else:
            merged.append(span)
    return merged
