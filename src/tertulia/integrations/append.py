"""Appending to a conversation without a turn, for SDKs that pass entries after the fact.

One call is one transaction. A message may have marks: lookup keys that find its position again and
that are deleted with it. They are stored as blobs of the message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from tertulia.core.message import Blob, draft, to_json
from tertulia.records.sessions.find import find_rows
from tertulia.records.transcript.log import Entry
from tertulia.storage.base import Transaction
from tertulia.storage.rows import SessionRow, parse_body

_MAX_INTEGER = 2**63 - 1
_PAGE = 500


def to_entry(
    message: Mapping[str, Any], kind: str | None = None, marks: Sequence[str] = ()
) -> Entry:
    """Return a message with its marks, ready to be stored; one with a kind begins no turn."""
    message_draft = draft(message)
    mark_blobs = tuple(Blob(mark, 0, b"") for mark in marks)
    blobs = (*message_draft.blobs, *mark_blobs)
    marked = msgspec.structs.replace(message_draft, blobs=blobs)
    return Entry(marked, kind, is_inside_turn=kind is not None)


def make_mark(*parts: str) -> str:
    """Return the mark for some parts; different parts give different marks."""
    raw = to_json(parts).encode("utf-8")
    return f"mark:{blake2b(raw, digest_size=20).hexdigest()}"


def find_positions(tx: Transaction, mark: str) -> list[tuple[int, int]]:
    """Return the log and the sequence number of every message with a mark, oldest first."""
    return [(log, seq) for log, seq in tx.all("places_of_blob", {"hash": mark})]


def is_stored(tx: Transaction, mark: str) -> bool:
    """Return whether a message has that mark."""
    return bool(find_positions(tx, mark))


def read_metadata(row: SessionRow) -> dict[str, Any]:
    """Return the metadata of a session."""
    return parse_body(row.metadata)


def find_sessions(
    tx: Transaction,
    *,
    person: str | None = None,
    key: str | None = None,
    platform: str | None = None,
    ended: bool = False,
) -> Iterable[SessionRow]:
    """Yield current sessions by newest activity; with `ended`, also sessions that have ended."""
    before = _MAX_INTEGER, _MAX_INTEGER
    while True:
        filters = {
            "platform": platform,
            "key": key,
            "person": person,
            "active_since": None,
            "before_at": before[0],
            "before_ref": before[1],
            "limit": _PAGE,
        }
        rows = find_rows(tx, filters, "all" if ended else "current", None)
        yield from rows
        if len(rows) < _PAGE:
            return
        before = rows[-1].updated_at, rows[-1].ref
