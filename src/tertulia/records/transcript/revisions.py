"""Revisions: the log is append-only, and a revision is a short list of ranges over it.

Undo, redo, rewrite, compaction and fork make a revision and point the session at it; no message
moves (decision 0003).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

import msgspec

from tertulia.core.history.view import Span, View, view_of_spans
from tertulia.core.message import INTERNAL, draft, to_json
from tertulia.core.text.storable import storable
from tertulia.errors import NotFound
from tertulia.records import session_rows
from tertulia.records.transcript.log import Entry, add_messages
from tertulia.records.transcript.read import read_summary
from tertulia.storage.base import Transaction
from tertulia.storage.rows import CurrentView, from_micros, parse_view

# How many messages are read at a time when the start of a turn is looked up.
_READ_BACK = 100

# Computes the spans that a new revision shows; None makes no revision.
Cut = Callable[[Transaction, CurrentView], list[Span] | None]


class Revision(msgspec.Struct, frozen=True):
    """One state of a transcript: the call that made it, its base, and how long it is."""

    number: int
    made_by: str
    made_from: int | None
    at: datetime
    messages: int
    is_current: bool


def add_revision(
    tx: Transaction,
    current: CurrentView,
    view: View,
    made_by: str,
    now: int,
    *,
    before: int,
    by: str | None = None,
    summary_seq: int | None = None,
    after: Span | None = None,
) -> int:
    """Store a revision and point the session at it; return its number.

    The revision before it stays closed at `before`, the last number it showed. A summary
    `summary_seq` stands for the messages up to `after`; without `after` the current summary is
    kept, if its last message is still visible.
    """
    if made_by != "compaction":
        reason = "the conversation was changed"
        session_rows.close_approvals(tx, current.ref, from_micros(now), reason)
    close_revision(tx, current, before)
    newest = tx.one("revision_newest", {"session": current.ref})
    assert newest is not None
    number = int(newest[0]) + 1
    if after is None:
        summary_seq, after = _summary_in(current, view)
    tx.run(
        "revision_insert",
        {
            "session": current.ref,
            "number": number,
            "ranges": to_json(view.ranges),
            "made_by": made_by,
            "made_from": current.number,
            "start_seq": current.last_seq,
            "now": now,
            "summary_seq": summary_seq,
            "after_log": after and after.log,
            "after_seq": after and after.first,
            "actor": storable(by),
        },
    )
    tx.run("session_set_revision", {"session": current.ref, "number": number})
    session_rows.record_event(
        tx, current.ref, from_micros(now), made_by, {"revision": number}, by=by
    )
    return number


def revise(
    tx: Transaction, session_id: str, made_by: str, cut: Cut, now: int, *, by: str | None = None
) -> None:
    """Store a revision of the spans that `cut` returns; nothing if it returns None."""
    current = session_rows.current_view(tx, session_id)
    spans = cut(tx, current)
    if spans is not None:
        view = view_of_spans(spans, current.ref, current.last_seq)
        add_revision(tx, current, view, made_by, now, before=current.last_seq, by=by)


def can_redo(current: CurrentView) -> bool:
    """Return whether the newest change is an undo, and no message was appended after it."""
    return (
        current.made_by == "undo"
        and current.made_from is not None
        and current.last_seq <= current.start_seq
    )


def redo(tx: Transaction, session_id: str, now: int, *, by: str | None = None) -> bool:
    """Point the session back at the revision before an undo; return whether there was one.

    Only if the undo is the newest change and no message was appended after it.
    """
    current = session_rows.current_view(tx, session_id)
    if current.made_from is None or not can_redo(current):
        return False
    close_revision(tx, current, current.last_seq)
    params = {"session": current.ref, "number": current.made_from}
    tx.run("revision_close", {**params, "seq": None})
    tx.run("session_set_revision", params)
    detail = {"revision": current.made_from}
    session_rows.record_event(tx, current.ref, from_micros(now), "redo", detail, by=by)
    return True


def restore(
    tx: Transaction, session_id: str, number: int, now: int, *, by: str | None = None
) -> None:
    """Store a revision that shows the same as revision `number`.

    Raise `NotFound` if there is no such session or revision.
    """
    current = session_rows.current_view(tx, session_id)
    past = past_view(tx, current, number)
    add_revision(tx, past, past.view, "restore", now, before=current.last_seq, by=by)


def past_view(tx: Transaction, current: CurrentView, number: int) -> CurrentView:
    """Return what revision `number` showed, with its summary; raise `NotFound`."""
    row = require_revision(tx, current, number)
    view = view_of_spans(spans_of(row, current), current.ref, current.last_seq)
    return current._replace(view=view, summary_seq=row[7], after_log=row[8], after_seq=row[9])


def copy_summary(tx: Transaction, current: CurrentView, fork: int, view: View, now: int) -> None:
    """Keep a summary in a fork as well, with a copy of its text in the fork's own log."""
    summary_seq, after = _summary_in(current, view)
    if after is None or summary_seq is None:
        return
    summary = read_summary(tx, current)
    assert summary is not None
    forked = session_rows.current_view_of(tx, fork)
    seq = add_messages(tx, fork, [Entry(draft(summary.body), INTERNAL)], now)
    add_revision(
        tx,
        forked._replace(last_seq=seq),
        view_of_spans(view.spans(forked.last_seq), fork, seq),
        "compaction",
        now,
        before=forked.last_seq,
        summary_seq=seq,
        after=after,
    )


def close_revision(tx: Transaction, current: CurrentView, last_seq: int) -> None:
    """Close the current revision, so that messages stored later do not become part of it."""
    tx.run("revision_close", {"session": current.ref, "number": current.number, "seq": last_seq})


def require_revision(tx: Transaction, current: CurrentView, number: int) -> tuple[Any, ...]:
    """Return the row of a revision; raise `NotFound` if there is none."""
    row = tx.one("revision_get", {"session": current.ref, "number": number})
    if row is None:
        raise NotFound(
            f"The transcript has no revision {number}.", hint="`revisions()` lists them."
        )
    return row


def spans_of(row: tuple[Any, ...], current: CurrentView) -> list[Span]:
    """Return the spans that a revision shows."""
    number, ranges, _, _, _, closed_seq, *_ = row
    last_seq = current.last_seq if number == current.number else closed_seq
    return parse_view(ranges).spans(last_seq)


def to_revision(row: tuple[Any, ...], current: CurrentView) -> Revision:
    """Return the row of a revision as a value."""
    number, _, made_by, made_from, _, _, at, *_ = row
    count = sum(span.size for span in spans_of(row, current))
    return Revision(number, made_by, made_from, from_micros(at), count, number == current.number)


def locate(current: CurrentView, seq: int) -> int:
    """Return the log that holds a message; raise `NotFound` if it is not visible."""
    try:
        return current.view.locate(seq, current.last_seq)
    except LookupError:
        raise NotFound(
            f"Message {seq} is not visible in this transcript.",
            hint="`entries()` lists the sequence numbers.",
        ) from None


def turn_starts(tx: Transaction, current: CurrentView, turns: int) -> list[tuple[int, int]]:
    """Return (log, seq) of the first message of each of the newest turns, newest first.

    Reads those turns and nothing before them.
    """
    starts: list[tuple[int, int]] = []
    turn = -1
    for log, seq, number in _read_backwards(tx, current.view.spans(current.last_seq)):
        if number != turn:
            if len(starts) == turns or number == 0:
                break
            turn = number
            starts.append((log, seq))
        else:
            starts[-1] = (log, seq)
    return starts


def since_turn_of(tx: Transaction, current: CurrentView, log: int, seq: int) -> list[Span]:
    """Return the visible spans from the start of the turn that a message belongs to."""
    start = (log, seq)
    turn: int | None = None
    spans = [*current.view.before(log, seq, current.last_seq), Span(log, seq, seq)]
    for back_log, back_seq, number in _read_backwards(tx, spans):
        if turn is not None and number != turn:
            break
        turn = number
        start = (back_log, back_seq)
    return current.view.since(*start, current.last_seq)


def without(spans: list[Span], log: int, seq: int) -> list[Span]:
    """Return the spans without one message."""
    remaining: list[Span] = []
    for span in spans:
        if span.log == log and span.first <= seq <= span.last:
            parts = (Span(log, span.first, seq - 1), Span(log, seq + 1, span.last))
            remaining += (part for part in parts if part.size > 0)
        else:
            remaining.append(span)
    return remaining


def _summary_in(current: CurrentView, view: View) -> tuple[int | None, Span | None]:
    """Return the summary that a new view keeps: its last message must be visible there."""
    if current.after_log is None or current.after_seq is None:
        return None, None
    if not view.contains(current.after_log, current.after_seq, current.last_seq):
        return None, None
    return current.summary_seq, Span(current.after_log, current.after_seq, current.after_seq)


def _read_backwards(tx: Transaction, spans: list[Span]) -> Iterable[tuple[int, int, int]]:
    """Yield (log, seq, turn) from the newest message back, a few rows at a time."""
    for span in reversed(spans):
        last = span.last
        while last >= span.first:
            params = {"session": span.log, "first": span.first, "last": last, "limit": _READ_BACK}
            rows = tx.all("messages_turn_numbers", params)
            if not rows:
                break
            for seq, turn in rows:
                yield span.log, seq, turn
            last = rows[-1][0] - 1
