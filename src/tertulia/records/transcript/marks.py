"""Marks of messages: lookup keys that find a message again and are deleted with it.

A mark is stored as an empty blob of its message, so it needs no table of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from msgspec.structs import replace

from tertulia.core.message import Blob, Draft, to_json
from tertulia.storage.base import Transaction


def make_mark(*parts: str) -> str:
    """Return the mark for some parts; different parts give different marks."""
    raw = to_json(parts).encode("utf-8")
    return f"mark:{blake2b(raw, digest_size=20).hexdigest()}"


def add_marks(draft: Draft, marks: Iterable[str]) -> Draft:
    """Return a message with marks, to be stored together."""
    return replace(draft, blobs=(*draft.blobs, *(Blob(mark, 0, b"") for mark in marks)))


def find_positions(tx: Transaction, mark: str) -> list[tuple[int, int]]:
    """Return the log and the sequence number of every message with a mark, oldest first."""
    return [(log, seq) for log, seq in tx.all("places_of_blob", {"hash": mark})]


def is_stored(tx: Transaction, mark: str) -> bool:
    """Return whether a message has that mark."""
    return bool(find_positions(tx, mark))
