"""Writing into a conversation past its turns: for SDKs that hand over what has already happened.

One call is one transaction. A message may carry marks: names under which it is found again, and
which go when it goes. They stand among the parts that a message keeps out of line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from hashlib import blake2b
from itertools import groupby
from typing import Any, NamedTuple

import msgspec

from tertulia.core.message import USER, Blob, Draft, draft, to_json
from tertulia.core.source import Source
from tertulia.records import session_rows
from tertulia.records.sessions.find import find_rows
from tertulia.records.sessions.open import (
    NeedsGuard,
    OpenSession,
)
from tertulia.records.store_context import StoreContext
from tertulia.records.transcript.log import insert_messages
from tertulia.storage.base import Transaction
from tertulia.storage.rows import SessionRow, parse_body, session_row, to_micros

_FAR = 2**63 - 1


class LogLine(NamedTuple):
    """A message that is ready to be stored, and what kind of row it becomes."""

    draft: Draft
    kind: str | None = None


def line(message: Mapping[str, Any], kind: str | None = None, marks: Sequence[str] = ()) -> LogLine:
    """A message with its marks."""
    written = draft(message)
    named = tuple(Blob(mark, 0, b"") for mark in marks)
    return LogLine(msgspec.structs.replace(written, blobs=(*written.blobs, *named)), kind)


def mark(*parts: str) -> str:
    """A name made of parts; different parts give different names."""
    raw = to_json(parts).encode("utf-8")
    return f"mark:{blake2b(raw, digest_size=20).hexdigest()}"


def places(tx: Transaction, name: str) -> list[tuple[int, int]]:
    """The log and the sequence number of every message with that mark, oldest first."""
    return [(log, seq) for log, seq in tx.all("places_of_blob", {"hash": name})]


def is_known(tx: Transaction, name: str) -> bool:
    """Whether a message has that mark."""
    return bool(places(tx, name))


def current(tx: Transaction, key: str) -> SessionRow | None:
    """The session that a key is in."""
    found = tx.one("session_current", {"key": key})
    return None if found is None else session_row(found)


class SessionOpener(NamedTuple):
    """What opening a session needs to know before its transaction."""

    context: StoreContext
    source: Source
    key: str
    now: datetime
    has_processes: bool

    @classmethod
    def of(cls, context: StoreContext, source: Source, key: str) -> SessionOpener:
        return cls(context, source, key, context.clock.now(), context.has_processes(key))

    def open(self, tx: Transaction) -> SessionRow:
        """The current session under its policy, or a new one."""
        attempt = OpenSession(
            self.context, self.source, self.key, self.now, False, self.has_processes
        )
        found = attempt.find(tx)
        assert not isinstance(found, NeedsGuard)  # what it would ask is known already
        return found[0]


def append(
    tx: Transaction,
    session_id: str,
    lines: Sequence[LogLine],
    *,
    now: datetime,
    active_at: datetime,
) -> int:
    """Append lines; the last sequence number. Each message of a person begins a turn."""
    begins = [item.draft.role == USER and item.kind is None for item in lines]
    params = {
        "id": session_id,
        "count": len(lines),
        "turns": sum(begins),
        "is_activity": True,
        "now": to_micros(active_at),
    }
    row = tx.one("session_append", params)
    if row is None:
        raise session_rows.session_not_found(session_id)
    ref, last_seq, turn = row[:3]
    number, seq = turn - sum(begins), last_seq - len(lines)
    numbers = [number := number + is_one for is_one in begins]
    for kind, group in groupby(zip(lines, numbers, strict=True), key=lambda pair: pair[0].kind):
        pairs = list(group)
        seq += len(pairs)
        insert_messages(
            tx,
            ref,
            seq,
            [item.draft for item, _ in pairs],
            to_micros(now),
            turns=[one for _, one in pairs],
            kind=kind,
        )
    return int(last_seq)


def metadata(row: SessionRow) -> dict[str, Any]:
    return parse_body(row.metadata)


def set_metadata(tx: Transaction, row: SessionRow, values: Mapping[str, Any]) -> None:
    params = {"ref": row.ref, "metadata": to_json(values), "version": None}
    tx.run("session_set_metadata", params)


def sessions(
    tx: Transaction,
    *,
    person: str | None = None,
    key: str | None = None,
    platform: str | None = None,
    ended: bool = False,
) -> Iterable[SessionRow]:
    """Current sessions by newest activity; with `ended` those that have ended as well."""
    before = _FAR, _FAR
    while True:
        filters = {
            "platform": platform,
            "key": key,
            "person": person,
            "active_since": None,
            "before_at": before[0],
            "before_ref": before[1],
            "limit": 500,
        }
        found = find_rows(tx, filters, "all" if ended else "current", None)
        yield from found
        if len(found) < 500:
            return
        before = found[-1].updated_at, found[-1].ref
