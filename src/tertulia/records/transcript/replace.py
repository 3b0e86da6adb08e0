"""Writing for those who hand over a whole transcript, as the session APIs of other systems do.

What they hand over is laid beside what the store holds, and only the difference is written: new
messages at the end are appended; for any other change a revision is made that shows the messages
which stayed where they lie in the log, with the new ones between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from tertulia.core import keys
from tertulia.core.history.view import (
    Span,
    View,
    opened,
)
from tertulia.core.message import COMMAND, DELIVERY, INTERNAL, USER, Draft, draft, to_json
from tertulia.core.source import LOCAL, Source
from tertulia.core.text.storable import storable
from tertulia.errors import ConfigError, NotFound
from tertulia.records import session_rows
from tertulia.records.store_context import StoreContext
from tertulia.records.transcript import transcript
from tertulia.storage.base import Transaction
from tertulia.storage.rows import CurrentView, SessionRow, session_row, to_micros

# The chat type of a transcript that came without a conversation.
TRANSCRIPT: Final = "transcript"

# Fields by which other systems mark what is no part of the exchange, and what they mean here.
_KINDS: Final = {
    "_command": COMMAND,
    "_channel_delivery": DELIVERY,
    "_hidden_history": INTERNAL,
}


class LogPosition(NamedTuple):
    """Where a message lies in the log, and the turn it belongs to."""

    log: int
    seq: int
    turn: int


class Snapshot(NamedTuple):
    """A transcript as it is seen: its places in order, and how many of them are consolidated."""

    places: list[LogPosition]
    offset: int


# One message of a transcript to be: the number of one that is held, or a new one.
Part = int | Mapping[str, Any]


# -- one message, one session


def append(context: StoreContext, session_id: str, message: Mapping[str, Any]) -> None:
    """Store a message; an id that no session has becomes a session of its own."""
    drafts = [draft(message)]
    now = context.clock.now().astimezone(UTC)

    def work(tx: Transaction) -> None:
        _adopt(tx, context, session_id, now)
        transcript.append_in(tx, session_id, drafts, None, to_micros(now))

    context.db.write(work)
    context.notify()


def rewrite(context: StoreContext, session_id: str, messages: Iterable[Mapping[str, Any]]) -> None:
    """Show these messages instead of what was shown, writing only what is new of them."""
    given = list(messages)
    check(given)
    now = context.clock.now().astimezone(UTC)

    def work(tx: Transaction) -> None:
        _adopt(tx, context, session_id, now)
        row = session_rows.require(tx, session_id)
        held, bodies = snapshot(tx, row)
        apply(tx, row, held, aligned(bodies, given), now)

    context.db.write(work)
    context.notify()


def set_last_prompt(context: StoreContext, session_id: str, tokens: int) -> None:
    """Say how long the last prompt was, apart from any model call."""
    if type(tokens) is not int or not 0 <= tokens < 2**53:
        raise ConfigError(
            f"last_prompt_tokens is {tokens!r}.",
            hint="Give a count of tokens, 0 or more.",
            field="last_prompt_tokens",
        )
    params = {"id": session_id, "last_prompt": tokens}
    if context.db.write(lambda tx: tx.changed("session_set_last_prompt", params)) == 0:
        raise session_rows.missing(session_id)


def begin(
    tx: Transaction, context: StoreContext, source: Source, key: str, created_at: datetime
) -> SessionRow:
    """A session that began at a given moment."""
    row = session_rows.begin(tx, context, source, key, created_at)
    session_rows.first_view(tx, row.ref, View.whole(row.ref), "start", created_at, 0)
    session_rows.event(tx, row.ref, created_at, "began", {})
    return row


def current(tx: Transaction, key: str) -> SessionRow | None:
    """The session a key is in now."""
    row = tx.one("session_current", {"key": key})
    return None if row is None else session_row(row)


def set_times(tx: Transaction, row: SessionRow, created_at: datetime, updated_at: datetime) -> None:
    """Say when a session began and when its person was last active, where that is known better."""
    times = {"created_at": to_micros(created_at), "updated_at": to_micros(updated_at)}
    if times != {"created_at": row.created_at, "updated_at": row.updated_at}:
        tx.run("session_set_times", {"ref": row.ref, **times})


def set_metadata(tx: Transaction, row: SessionRow, metadata: Mapping[str, Any]) -> None:
    written = to_json(metadata)
    if written != row.metadata:
        tx.run("session_set_metadata", {"ref": row.ref, "metadata": written, "version": None})


def kind_of(message: Mapping[str, Any]) -> str | None:
    """What a message is besides its role, told by the marks of other systems."""
    return next((kind for field, kind in _KINDS.items() if message.get(field)), None)


# -- what was done once


def is_noted(context: StoreContext, name: str) -> bool:
    """Whether this installation has a note of that name."""
    return context.db.read(lambda tx: tx.one("installation_get", {"name": name})) is not None


def note(context: StoreContext, name: str) -> None:
    """Remember that something was done, for as long as the store exists."""
    value = context.clock.now().astimezone(UTC).isoformat()
    context.db.write(lambda tx: tx.run("installation_note", {"name": name, "value": value}))


# -- whole transcripts


def snapshot(tx: Transaction, row: SessionRow) -> tuple[Snapshot, list[dict[str, Any]]]:
    """A transcript as it is seen, and its messages."""
    seen = session_rows.current_view_of(tx, row.ref)
    rows = transcript.read(tx, seen.view.spans(seen.last_seq))
    places = [LogPosition(one.session, one.seq, one.turn) for one in rows]
    offset = 0
    if seen.after_log is not None:
        after = (seen.after_log, seen.after_seq)
        offset = next((n for n, p in enumerate(places, 1) if (p.log, p.seq) == after), 0)
    return Snapshot(places, offset), [one.body for one in rows]


def check(messages: Iterable[object]) -> None:
    """Refuse what is no message; a number among them would be taken for that of one."""
    for message in messages:
        if not isinstance(message, dict | Mapping):
            draft(message)  # type: ignore[arg-type]  # raises, and tells why


def aligned(old: Sequence[Any], new: Sequence[Any]) -> list[Part]:
    """The new messages, with those at both ends that are the same told by their old numbers."""
    most = min(len(old), len(new))
    first = next((n for n in range(most) if old[n] != new[n]), most)
    most -= first
    last = next((n for n in range(most) if old[-1 - n] != new[-1 - n]), most)
    middle = new[first : len(new) - last]
    return [*range(first), *middle, *range(len(old) - last, len(old))]


def apply(
    tx: Transaction,
    row: SessionRow,
    held: Snapshot,
    parts: Sequence[Part],
    now: datetime,
    *,
    offset: int = 0,
) -> Snapshot:
    """Make the transcript consist of `parts`; nothing is written where that is so already.

    `offset` tells how many messages are consolidated. It is kept by the message it stands after:
    trimming does not shift it, and it never goes back to one that is still seen.
    """
    micros = to_micros(now)
    seen = session_rows.current_view_of(tx, row.ref)
    drafts = [draft(part) for part in parts if not isinstance(part, int)]
    places = _places(held, parts, seen)
    if drafts:
        new = [
            place for place, part in zip(places, parts, strict=True) if not isinstance(part, int)
        ]
        _insert(tx, row, drafts, [part for part in parts if not isinstance(part, int)], new, micros)
    laid = Snapshot(places, _offset(held, places, offset))
    is_extended = places[: len(held.places)] == held.places
    if not is_extended or laid.offset != held.offset:
        _show(tx, seen, laid, len(drafts), micros)
    return laid


def _places(held: Snapshot, parts: Sequence[Part], seen: CurrentView) -> list[LogPosition]:
    """Where each part lies or will lie. A person's message begins a turn, others go on with it."""
    places: list[LogPosition] = []
    seq, turns = seen.last_seq, seen.turns
    for part in parts:
        if isinstance(part, int):
            places.append(held.places[part])
            continue
        seq += 1
        if part.get("role") == USER:
            turns += 1
            places.append(LogPosition(seen.ref, seq, turns))
        else:
            places.append(LogPosition(seen.ref, seq, places[-1].turn if places else turns))
    return places


def _insert(
    tx: Transaction,
    row: SessionRow,
    drafts: Sequence[Draft],
    given: Sequence[Mapping[str, Any]],
    places: Sequence[LogPosition],
    micros: int,
) -> None:
    params = {
        "id": row.id,
        "count": len(drafts),
        "turns": sum(item.role == USER for item in drafts),
        "is_activity": False,
        "now": micros,
    }
    tx.one("session_append", params)
    transcript.insert(
        tx,
        row.ref,
        places[-1].seq,
        drafts,
        micros,
        turns=[place.turn for place in places],
        kinds=[kind_of(message) for message in given],
    )


def _offset(held: Snapshot, places: Sequence[LogPosition], wanted: int) -> int:
    """How many messages are consolidated, if the one that stood last is not to be taken back."""
    standing = 0
    if held.offset:
        last = held.places[held.offset - 1]
        standing = next((number for number, place in enumerate(places, 1) if place == last), 0)
    return max(standing, min(wanted, len(places)))


def _show(tx: Transaction, seen: CurrentView, laid: Snapshot, added: int, micros: int) -> None:
    last_seq = seen.last_seq + added
    view = opened(_spans(laid.places), seen.ref, last_seq)
    now = seen._replace(last_seq=last_seq)
    after = None
    if laid.offset:
        place = laid.places[laid.offset - 1]
        after = Span(place.log, place.seq, place.seq)
    transcript.show(
        tx, now, view, "rewrite", micros,
        before=seen.last_seq, summary_seq=seen.summary_seq if after else None, after=after,
    )  # fmt: skip


def _spans(places: Iterable[LogPosition]) -> list[Span]:
    spans: list[Span] = []
    for log, seq, _ in places:
        if spans and spans[-1].log == log and spans[-1].last == seq - 1:
            spans[-1] = Span(log, spans[-1].first, seq)
        else:
            spans.append(Span(log, seq, seq))
    return spans


def _adopt(tx: Transaction, context: StoreContext, session_id: str, now: datetime) -> None:
    """Make sure that there is a session of that id: if not, one that ended and is in no chat."""
    if tx.one("session_by_id", {"id": session_id}) is not None:
        return
    if not session_id or storable(session_id) != session_id:
        raise NotFound(
            f"{session_id!r} is no id of a session.", hint="Give the id that the session was given."
        )
    source = Source(LOCAL, session_id, chat_type=TRANSCRIPT)
    key = keys.session_key(source, agent=context.settings.agent)
    row = begin(tx, context, source, key, now)
    tx.run("session_set_id", {"ref": row.ref, "id": session_id})
    session_rows.end(tx, row, "adopted", now)
