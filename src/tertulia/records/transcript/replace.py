"""Replacing a whole transcript, as callers of the session APIs of other systems do.

The given messages are compared with the stored ones, and only the difference is written: new
messages at the end are appended; for any other change a revision is made that shows the unchanged
messages at their old positions in the log, with the new ones between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from tertulia.core import keys
from tertulia.core.history.view import Span, view_of_spans
from tertulia.core.message import COMMAND, DELIVERY, INTERNAL, USER, draft
from tertulia.core.source import LOCAL, Source, StoredChatType
from tertulia.core.text.storable import storable
from tertulia.errors import ConfigError, NotFound
from tertulia.records import session_rows
from tertulia.records.sessions.open import begin_session
from tertulia.records.store_context import StoreContext
from tertulia.records.transcript.log import Entry, append_messages
from tertulia.records.transcript.read import read_messages
from tertulia.records.transcript.revisions import add_revision
from tertulia.storage import installation
from tertulia.storage.base import Transaction
from tertulia.storage.rows import CurrentView, SessionRow, to_micros

# The chat type of a transcript that belongs to no conversation.
TRANSCRIPT: Final = "transcript"

# Fields by which other systems mark messages outside the exchange, and the kinds they become.
_KINDS: Final = {
    "_command": COMMAND,
    "_channel_delivery": DELIVERY,
    "_hidden_history": INTERNAL,
}


class LogPosition(NamedTuple):
    """The position of a message in the log, and the turn it belongs to."""

    log: int
    seq: int
    turn: int


class Snapshot(NamedTuple):
    """The visible messages as positions, in order, and how many of them are consolidated."""

    positions: list[LogPosition]
    offset: int


# One message of the new transcript: the index of a stored one, or a new message.
Part = int | Mapping[str, Any]


# -- one message, one session


def append(context: StoreContext, session_id: str, message: Mapping[str, Any]) -> None:
    """Store a message; for an unknown session id, make a session first.

    Raise `NotFound` if the text cannot be an id, `IllegalMove` if the message is not one.
    """
    entry = Entry(draft(message))
    now = context.clock.now()

    def work(tx: Transaction) -> None:
        _insert_if_unknown(tx, context, session_id, now)
        append_messages(tx, session_id, [entry], to_micros(now))

    context.db.write(work)
    context.notify_indexer()


def rewrite(context: StoreContext, session_id: str, messages: Iterable[Mapping[str, Any]]) -> None:
    """Show these messages instead of the visible ones; only the new ones are stored."""
    new = list(messages)
    check_messages(new)
    now = context.clock.now()

    def work(tx: Transaction) -> None:
        _insert_if_unknown(tx, context, session_id, now)
        row = session_rows.require(tx, session_id)
        stored, bodies = snapshot(tx, row)
        apply(tx, row, stored, align(bodies, new), now)

    context.db.write(work)
    context.notify_indexer()


def set_last_prompt(context: StoreContext, session_id: str, tokens: int) -> None:
    """Store the length of the last prompt without a model call.

    Raise `NotFound` if there is no such session.
    """
    if type(tokens) is not int or not 0 <= tokens < 2**53:
        raise ConfigError(
            f"last_prompt_tokens is {tokens!r}.",
            hint="Give a count of tokens, 0 or more.",
            field="last_prompt_tokens",
        )
    params = {"id": session_id, "last_prompt": tokens}
    if context.db.write(lambda tx: tx.changed("session_set_last_prompt", params)) == 0:
        raise session_rows.session_not_found(session_id)


def set_times(tx: Transaction, row: SessionRow, created_at: datetime, updated_at: datetime) -> None:
    """Store when a session began and when its user was last active, as another system knows it."""
    times = {"created_at": to_micros(created_at), "updated_at": to_micros(updated_at)}
    if times != {"created_at": row.created_at, "updated_at": row.updated_at}:
        tx.run("session_set_times", {"ref": row.ref, **times})


def kind_of(message: Mapping[str, Any]) -> str | None:
    """Return the kind of a message by the marks of other systems, or None."""
    return next((kind for field, kind in _KINDS.items() if message.get(field)), None)


# -- notes of the installation


def is_noted(context: StoreContext, name: str) -> bool:
    """Return whether this installation has a note of that name."""
    return context.db.read(lambda tx: installation.get(tx, name)) is not None


def note(context: StoreContext, name: str) -> None:
    """Store that something was done, for as long as the store exists."""
    value = context.clock.now().isoformat()
    context.db.write(lambda tx: tx.run("installation_set_once", {"name": name, "value": value}))


# -- whole transcripts


def snapshot(tx: Transaction, row: SessionRow) -> tuple[Snapshot, list[dict[str, Any]]]:
    """Return the visible messages as positions, and their bodies."""
    current = session_rows.current_view_of(tx, row.ref)
    messages = read_messages(tx, current.view.spans(current.last_seq))
    positions = [LogPosition(message.session, message.seq, message.turn) for message in messages]
    offset = 0
    if current.after_log is not None:
        after = (current.after_log, current.after_seq)
        offset = next(
            (
                count
                for count, position in enumerate(positions, 1)
                if (position.log, position.seq) == after
            ),
            0,
        )
    return Snapshot(positions, offset), [message.body for message in messages]


def check_messages(messages: Iterable[object]) -> None:
    """Raise `IllegalMove` unless all are messages.

    An integer would be mistaken for the index of a stored message.
    """
    for message in messages:
        if not isinstance(message, dict | Mapping):
            draft(message)  # type: ignore[arg-type]  # raises with the reason


def align(old: Sequence[Any], new: Sequence[Any]) -> list[Part]:
    """Return the new messages; those equal to old ones at both ends become their indexes."""
    most = min(len(old), len(new))
    first = next((n for n in range(most) if old[n] != new[n]), most)
    most -= first
    last = next((n for n in range(most) if old[-1 - n] != new[-1 - n]), most)
    middle = new[first : len(new) - last]
    return [*range(first), *middle, *range(len(old) - last, len(old))]


def apply(
    tx: Transaction,
    row: SessionRow,
    stored: Snapshot,
    parts: Sequence[Part],
    now: datetime,
    *,
    offset: int = 0,
) -> Snapshot:
    """Make the transcript consist of `parts`; return it. Nothing is written if it does already.

    `offset` is the number of consolidated messages. It is stored by its last message: trimming does
    not shift it, and it never goes back to a message that is still visible.
    """
    micros = to_micros(now)
    current = session_rows.current_view_of(tx, row.ref)
    positions = _positions(stored, parts, current)
    entries = [
        Entry(draft(part), kind_of(part), position.turn)
        for position, part in zip(positions, parts, strict=True)
        if not isinstance(part, int)
    ]
    if entries:
        append_messages(tx, row.id, entries, micros, is_activity=False)
    applied = Snapshot(positions, _new_offset(stored, positions, offset))
    is_extended = positions[: len(stored.positions)] == stored.positions
    if not is_extended or applied.offset != stored.offset:
        _add_revision(tx, current, applied, len(entries), micros)
    return applied


def _positions(stored: Snapshot, parts: Sequence[Part], current: CurrentView) -> list[LogPosition]:
    """Return the position of each part. A user's message begins a turn, others continue it."""
    positions: list[LogPosition] = []
    seq, turns = current.last_seq, current.turns
    for part in parts:
        if isinstance(part, int):
            positions.append(stored.positions[part])
            continue
        seq += 1
        if part.get("role") == USER:
            turns += 1
            turn = turns
        else:
            turn = positions[-1].turn if positions else turns
        positions.append(LogPosition(current.ref, seq, turn))
    return positions


def _new_offset(stored: Snapshot, positions: Sequence[LogPosition], offset: int) -> int:
    """Return the number of consolidated messages.

    It never falls below the stored one while its last message is visible.
    """
    stored_offset = 0
    if stored.offset:
        last = stored.positions[stored.offset - 1]
        stored_offset = positions.index(last) + 1 if last in positions else 0
    return max(stored_offset, min(offset, len(positions)))


def _add_revision(
    tx: Transaction, current: CurrentView, applied: Snapshot, added: int, micros: int
) -> None:
    last_seq = current.last_seq + added
    view = view_of_spans(_spans(applied.positions), current.ref, last_seq)
    after = None
    if applied.offset:
        position = applied.positions[applied.offset - 1]
        after = Span(position.log, position.seq, position.seq)
    add_revision(
        tx,
        current._replace(last_seq=last_seq),
        view,
        "rewrite",
        micros,
        before=current.last_seq,
        summary_seq=current.summary_seq if after else None,
        after=after,
    )


def _spans(positions: Iterable[LogPosition]) -> list[Span]:
    spans: list[Span] = []
    for log, seq, _ in positions:
        if spans and spans[-1].log == log and spans[-1].last == seq - 1:
            spans[-1] = Span(log, spans[-1].first, seq)
        else:
            spans.append(Span(log, seq, seq))
    return spans


def _insert_if_unknown(
    tx: Transaction, context: StoreContext, session_id: str, now: datetime
) -> None:
    """Insert a session for an unknown id: one that has ended and belongs to no chat.

    Raise `NotFound` if the text cannot be an id.
    """
    if session_rows.get(tx, session_id) is not None:
        return
    if not session_id or storable(session_id) != session_id:
        raise NotFound(f"Invalid session id {session_id!r}.", hint="Give the id of a session.")
    source = Source(LOCAL, session_id, chat_type=StoredChatType(TRANSCRIPT))
    key = keys.session_key(source, agent=context.settings.agent)
    row = begin_session(tx, context, source, key, now, person=None)
    tx.run("session_set_id", {"ref": row.ref, "id": session_id})
    session_rows.mark_ended(tx, row, "adopted", now)
