"""Windows of a transcript: some of its messages, and how many messages precede and follow them.

The cost of a window depends on its length and on how often the transcript was changed, not on the
length of the conversation.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from tertulia.core import validate
from tertulia.core.history.view import Span, index_of, slice_spans
from tertulia.core.message import Message
from tertulia.errors import ConfigError, NotFound
from tertulia.records import session_rows
from tertulia.records.transcript.read import read_messages
from tertulia.records.transcript.revisions import (
    can_redo,
    require_revision,
    spans_of,
    to_revision,
)
from tertulia.storage.base import Row, Transaction
from tertulia.storage.rows import CurrentView, parse_view

_MAX_LIMIT: Final = 1000
_NEWEST: Final = 2**62


class TranscriptWindow(NamedTuple):
    """Some messages of a transcript as revision `revision` shows it, oldest first.

    `before` and `after` are how many messages precede and follow them. `can_redo`: the newest
    change is an undo, and no message was added since.
    """

    messages: tuple[Message, ...]
    before: int
    after: int
    revision: int
    is_current: bool
    can_redo: bool


class RevisionChange(msgspec.Struct, frozen=True, kw_only=True):
    """One state of a transcript: what made it and who, and how many messages came and went.

    `came` and `went` compare it with the revision it was made from.
    """

    number: int
    made_by: str
    made_from: int | None
    at: datetime
    by: str | None
    messages: int
    came: int
    went: int
    is_current: bool


def read_window(
    tx: Transaction,
    session_id: str,
    *,
    before: int | None,
    after: int | None,
    around: int | None,
    revision: int | None,
    limit: int,
) -> TranscriptWindow:
    """Return a window of a transcript; see `Transcript.window`."""
    validate.integer("limit", limit, 1, _MAX_LIMIT)
    if sum(seq is not None for seq in (before, after, around)) > 1:
        raise ConfigError(
            "A window is before, after or around a message.", hint="Give only one of them."
        )
    current = session_rows.current_view(tx, session_id)
    number = current.number if revision is None else revision
    spans = current.view.spans(current.last_seq)
    if number != current.number:
        spans = spans_of(require_revision(tx, current, number), current)
    total = sum(span.size for span in spans)
    start, stop = total - limit, total
    if before is not None:
        stop = _index(spans, before)
        start = stop - limit
    elif after is not None:
        start = _index(spans, after) + 1
        stop = start + limit
    elif around is not None:
        # At either end of the transcript the window is as long as elsewhere.
        start = min(_index(spans, around) - limit // 2, total - limit)
        stop = max(start, 0) + limit
    start, stop = max(start, 0), min(stop, total)
    return TranscriptWindow(
        tuple(read_messages(tx, slice_spans(spans, start, stop))),
        start,
        total - stop,
        number,
        number == current.number,
        can_redo(current),
    )


def read_revisions(
    tx: Transaction, session_id: str, limit: int, before: int | None
) -> tuple[RevisionChange, ...]:
    """Return revisions of a transcript, newest first, below number `before`."""
    validate.integer("limit", limit, 1, _MAX_LIMIT)
    current = session_rows.current_view(tx, session_id)
    params = {"session": current.ref, "before": before or _NEWEST, "limit": limit}
    rows = {row[0]: row for row in tx.all("revisions_page", params)}
    changes = []
    for row in list(rows.values()):
        base = row[3]
        if base is not None and base not in rows:
            rows[base] = require_revision(tx, current, base)
        changes.append(_to_change(row, None if base is None else rows[base], current))
    return tuple(changes)


def _to_change(row: Row, base: Row | None, current: CurrentView) -> RevisionChange:
    """Compare a revision, as it was when it was made, with the one it was made from."""
    revision = to_revision(row, current)
    start_seq = row[4]
    new = parse_view(row[1]).spans(start_seq)
    old = [] if base is None else parse_view(base[1]).spans(min(base[5] or start_seq, start_seq))
    common = _count_common(old, new)
    return RevisionChange(
        number=revision.number,
        made_by=revision.made_by,
        made_from=revision.made_from,
        at=revision.at,
        by=row[10],
        messages=revision.messages,
        came=sum(span.size for span in new) - common,
        went=sum(span.size for span in old) - common,
        is_current=revision.is_current,
    )


def _count_common(old: list[Span], new: list[Span]) -> int:
    """Return how many messages two lists of spans share."""
    return sum(
        max(0, min(span.last, other.last) - max(span.first, other.first) + 1)
        for span in old
        for other in new
        if span.log == other.log
    )


def _index(spans: list[Span], seq: int) -> int:
    """Return how many messages stand before a message; raise `NotFound` if it is not visible."""
    try:
        return index_of(spans, seq)
    except LookupError:
        raise NotFound(
            f"Message {seq} is not visible in this transcript.",
            hint="It may have been taken back; ask for the newest window.",
        ) from None
