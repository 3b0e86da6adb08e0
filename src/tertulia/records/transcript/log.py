"""The append-only log of messages. Every message of every session is stored here.

An append is one statement that raises the sequence number of the session by the number of messages,
and the rows of these messages, with their large parts. The statement differs: it may also touch the
activity, add usage, or check the lease of a turn (`append_with`). Messages that are not yet in the
search index are noted for the indexer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tertulia.core.message import USER, Blob, Draft
from tertulia.records import session_rows, usage_rows
from tertulia.storage.base import Row, Transaction


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A message to append, and the other columns of its row."""

    draft: Draft
    kind: str | None = None
    turn: int | None = None  # None: each message of a user begins a turn, others continue it
    at: int | None = None  # None: the time of the append
    author: str | None = None
    is_inside_turn: bool = False  # it continues a turn, even if its role is that of a user


def append_messages(
    tx: Transaction,
    session_id: str,
    entries: Sequence[Entry],
    now: int,
    *,
    cost: Mapping[str, Any] | None = None,
    is_activity: bool | None = None,
    active_at: int | None = None,
) -> int:
    """Append messages to a session outside its turns; return the last sequence number.

    They are activity if one of them begins a turn, unless `is_activity` says otherwise; `active_at`
    is the time of the activity if it is not `now`. `cost` is a model call to enter with them, as
    `usage.charge` returns it. Raise `NotFound` if there is no such session.
    """
    new_turns = _count_new_turns(entries)
    params: dict[str, Any] = {
        "id": session_id,
        "turns": new_turns,
        "is_activity": new_turns > 0 if is_activity is None else is_activity,
        "now": now if active_at is None else active_at,
        **(cost or {}),
    }
    statement = "session_append" if cost is None else "session_append_with_usage"
    row = append_with(tx, statement, params, entries, now, new_turns=new_turns)
    if row is None:
        raise session_rows.session_not_found(session_id)
    if cost is not None:
        params["turn"], _, params["platform"], params["person"] = row[2:]
        usage_rows.insert_call(tx, params)
    return int(row[1])


def add_messages(tx: Transaction, ref: int, entries: Sequence[Entry], now: int) -> int:
    """Append messages that a change of the transcript needs; return the last sequence number.

    Activity, turns and version of the session stay as they are.
    """
    row = append_with(tx, "session_add_messages", {"ref": ref}, entries, now)
    assert row is not None
    return int(row[1])


def append_with(
    tx: Transaction,
    statement: str,
    params: dict[str, Any],
    entries: Sequence[Entry],
    now: int,
    *,
    new_turns: int | None = None,
) -> Row | None:
    """Append messages with a statement that counts them; return the row that it returns.

    The statement adds `:count`, which is put into `params` here, to the sequence number of one
    session. It returns the columns ref, last sequence number, number of turns, and whether older
    messages wait for the indexer; others may follow. If its condition does not hold, return None:
    nothing was stored. `new_turns` is how many of the messages begin a turn, if the caller knows.
    """
    params["count"] = len(entries)
    row = tx.one(statement, params)
    if row is not None and entries:
        _insert(
            tx, row, entries, now, _count_new_turns(entries) if new_turns is None else new_turns
        )
    return row


def _count_new_turns(entries: Sequence[Entry]) -> int:
    """Return how many messages begin a turn; the turn of the session ends before each."""
    return sum([entry.draft.role == USER and not entry.is_inside_turn for entry in entries])


def _insert(
    tx: Transaction, counted: Row, entries: Sequence[Entry], now: int, new_turns: int
) -> None:
    """Insert the rows of messages that were counted, and their large parts."""
    ref, last_seq, turn, is_awaited = counted[:4]
    # One integer holds session and sequence number: decision 0001.
    position = (ref << 32) + last_seq - len(entries)
    turn -= new_turns
    rows = []
    for entry in entries:
        item = entry.draft
        position += 1
        if item.role == USER and not entry.is_inside_turn:
            turn += 1
        number = turn if entry.turn is None else entry.turn
        at = now if entry.at is None else entry.at
        rows.append(
            (position, number, item.role, entry.kind, entry.author, at, item.body, item.away)
        )
        if item.blobs:
            _insert_blobs(tx, position, item.blobs)
    tx.many("message_insert", rows)
    # If older messages of the session wait for the indexer, it is noted there already.
    if not is_awaited:
        tx.run("unindexed_put", {"session": ref})


def _insert_blobs(tx: Transaction, place: int, blobs: Sequence[Blob]) -> None:
    """Insert the large parts of a message, and link those that are stored already."""
    for blob in blobs:
        if blob.data is None:
            tx.run("media_link", {"place": place, "hash": blob.hash})
            tx.run("media_settle", {"hash": blob.hash})
            continue
        tx.run("blob_insert", {"hash": blob.hash, "size": blob.size, "data": blob.data})
        tx.run("blob_link", {"place": place, "hash": blob.hash})
