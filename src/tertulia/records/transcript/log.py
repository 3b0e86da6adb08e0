"""The append-only log of messages: number them, assign their turns and insert their rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any

from tertulia.core.message import USER, Draft
from tertulia.records import session_rows
from tertulia.records.usage import Charge
from tertulia.storage.base import Transaction


def append_messages(
    tx: Transaction,
    session_id: str,
    drafts: Sequence[Draft],
    cost: Charge | None,
    now: int,
    *,
    is_activity: bool = True,
    times: Sequence[int] | None = None,
    kinds: Sequence[str | None] | None = None,
) -> int:
    """Append messages to a session within a transaction; return the last sequence number.

    Each message of a user begins a turn, and counts as activity unless `is_activity` is False.
    `times` and `kinds` give each message its own, for messages that come from another system.
    Raise `NotFound` if there is no such session.
    """
    new_turns = sum(item.role == USER for item in drafts)
    params: dict[str, Any] = {
        "id": session_id,
        "count": len(drafts),
        "turns": new_turns,
        "is_activity": is_activity and new_turns > 0,
        "now": now,
    }
    if cost is None:
        row = tx.one("session_append", params)
    else:
        params.update(cost)
        row = tx.one("session_append_with_usage", params)
    if row is None:
        raise session_rows.session_not_found(session_id)
    ref, last_seq, last_turn, *owner, is_awaited = row
    turn = last_turn - new_turns
    turns = [turn := turn + (item.role == USER) for item in drafts]
    insert_messages(
        tx, ref, last_seq, drafts, now, turns=turns, times=times, kinds=kinds,
        is_awaited=is_awaited,
    )  # fmt: skip
    if cost is not None:
        params.update(turn=last_turn, platform=owner[0], person=owner[1])
        tx.run("usage_insert", params)
    return int(last_seq)


def insert_messages(
    tx: Transaction,
    ref: int,
    last_seq: int,
    drafts: Sequence[Draft],
    now: int,
    *,
    turns: Sequence[int],
    author: str | None = None,
    kind: str | None = None,
    times: Sequence[int] | None = None,
    kinds: Sequence[str | None] | None = None,
    is_awaited: bool = False,
) -> None:
    """Insert messages into the log so that the last one has the number `last_seq`.

    `times` and `kinds` replace `now` and `kind` if each message has its own. `is_awaited` says that
    older messages of the session are not indexed yet: then the indexer knows of it already.
    """
    # One integer holds session and sequence number: decision 0001.
    position = (ref << 32) + last_seq - len(drafts)
    entries = []
    each_at = repeat(now, len(drafts)) if times is None else times
    each_kind = repeat(kind, len(drafts)) if kinds is None else kinds
    for item, turn, at, item_kind in zip(drafts, turns, each_at, each_kind, strict=True):
        position += 1
        entries.append((position, turn, item.role, item_kind, author, at, item.body, item.away))
        if item.blobs:
            _insert_blobs(tx, position, item)
    tx.many("message_insert", entries)
    if not is_awaited:
        tx.run("unindexed_put", {"session": ref})


def _insert_blobs(tx: Transaction, position: int, item: Draft) -> None:
    """Store the large parts of a message by their hash."""
    for blob in item.blobs:
        tx.run("blob_insert", {"hash": blob.hash, "size": blob.size, "data": blob.data})
        tx.run("blob_link", {"place": position, "hash": blob.hash})
