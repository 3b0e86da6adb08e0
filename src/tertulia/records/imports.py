"""Imports: sessions from another system, many in one transaction, each of them only once.

A session is imported in batches. The first batch creates it, each batch adds messages, and the last
one carries the `ImportSummary`: everything that is known only of the session as a whole. A batch
and the progress of its session are stored in one transaction, so an import that was killed
continues where it stopped.

While it is being imported, a session counts as ended. If it was current in the other system, it
becomes current with its last batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from tertulia.core import title as titles
from tertulia.core.history.view import Span, View, view_of_spans
from tertulia.core.message import INTERNAL, SUMMARY, Draft, draft, to_json
from tertulia.core.source import Source
from tertulia.core.text.storable import storable
from tertulia.errors import StaleWrite
from tertulia.records import session_rows, usage_rows
from tertulia.records.links import add_import_link
from tertulia.records.store_context import StoreContext
from tertulia.records.transcript.log import Entry, add_messages, append_messages
from tertulia.records.transcript.revisions import add_revision
from tertulia.records.usage import Charge, add_in
from tertulia.storage.base import Transaction
from tertulia.storage.rows import CurrentView, SessionRow, from_micros, to_micros

IMPORTED = "imported"


class ImportedSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session to import, as it is known before its messages are read."""

    name: str  # unique among all imported sessions, for ever
    id: str | None  # the id to keep, unless another session has it
    key: str
    agent: str
    source: Source
    person: str | None
    display_name: str | None
    created_at: int
    derived_key: str | None = None  # the key of the user's next message, if it differs from `key`


class ImportedMessage(NamedTuple):
    """A message to import."""

    draft: Draft
    at: int
    kind: str | None


class ImportSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about an imported session that are known once all its messages were read."""

    created_at: int
    updated_at: int
    ended_at: int | None
    end_reason: str | None
    title: str | None = None
    parent_id: str | None = None
    parent_kind: str | None = None
    last_prompt: int = 0
    model: str | None = None
    provider: str | None = None
    metadata: Mapping[str, Any] = {}
    charges: tuple[Charge, ...] = ()
    side_charges: tuple[Charge, ...] = ()  # in the ledger, but not in the session's totals
    hidden: tuple[tuple[int, int], ...] = ()  # ranges of message numbers, last included, to hide
    consolidated: int = 0  # how many of the first messages the model is no longer shown
    summary: str | None = None  # the text that the model is shown instead of them


class ImportBatch(NamedTuple):
    """Consecutive messages of one imported session; the last batch has its summary."""

    session: ImportedSession
    is_first: bool
    stored_before: int  # how many messages of the session earlier batches have stored
    messages: Sequence[ImportedMessage]
    digest: str  # of all messages up to the end of this batch
    summary: ImportSummary | None
    was_complete: bool = False  # an earlier import had finished the session; this one adds to it


class ImportProgress(NamedTuple):
    """Stored progress of an imported session."""

    session_id: str
    ref: int
    stored: int  # how many messages were stored
    digest: str
    is_complete: bool
    has_new_messages: bool  # messages were added to it in this store


class Imports:
    """The imported sessions of a store."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context
        self._db = context.db

    def get_progress(self, name: str) -> ImportProgress | None:
        """Return the progress of the session with that name; None if nothing of it is stored."""
        return self._db.read(lambda tx: _get_progress(tx, name))

    def get_blocking_session(self, key: str, updated_at: int) -> str | None:
        """Return the id of the session that would stay current for a key, or None.

        `updated_at` is the last activity of the session to import under that key.
        """

        def work(tx: Transaction) -> str | None:
            current = session_rows.get_current(tx, key)
            if current is None or _is_replaceable(tx, current, updated_at):
                return None
            return current.id

        return self._db.read(work)

    def write(self, batches: Sequence[ImportBatch]) -> list[str]:
        """Store batches in one transaction and return the ids of their sessions.

        Raise `StaleWrite` if another import has stored messages of the same session meanwhile.
        """
        now = to_micros(self._context.clock.now())
        return self._db.write(lambda tx: [_store_batch(tx, batch, now) for batch in batches])


class MessageDigest:
    """A running hash of messages, to recognise those that an earlier import has stored."""

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=16)

    def add(self, message: Draft) -> None:
        """Hash one more message."""
        self._hash.update(message.body.encode())
        if message.away is not None:
            self._hash.update(message.away.encode())

    def __str__(self) -> str:
        return self._hash.hexdigest()


def _get_progress(tx: Transaction, name: str) -> ImportProgress | None:
    row = tx.one("import_get", {"name": name})
    if row is None:
        return None
    session_id, ref, stored, digest, is_complete, has_new_messages = row
    return ImportProgress(
        session_id, ref, stored, digest, bool(is_complete), bool(has_new_messages)
    )


def _store_batch(tx: Transaction, batch: ImportBatch, now: int) -> str:
    """Store one batch and the progress of its session; return the id of the session."""
    name = batch.session.name
    progress = _get_progress(tx, name)
    if (progress is None) != batch.is_first or (
        progress and progress.stored != batch.stored_before
    ):
        raise StaleWrite(
            "Another import of the same sessions is under way.",
            hint="Let one of them finish, then run the import again.",
        )
    session_id, ref = progress[:2] if progress else _insert_session(tx, batch.session, now)
    if batch.messages:
        entries = [Entry(item.draft, item.kind, at=item.at) for item in batch.messages]
        append_messages(tx, session_id, entries, now, is_activity=False)
    summary = batch.summary
    if summary is not None and batch.was_complete:
        tx.run("imported_session_set_updated", {"ref": ref, "updated_at": summary.updated_at})
    elif summary is not None:
        _apply_summary(tx, session_id, ref, batch.session, summary, now)
    advance = {
        "name": name,
        "taken": batch.stored_before + len(batch.messages),
        "digest": batch.digest,
        "is_complete": int(summary is not None or batch.was_complete),
    }
    tx.run("import_set_progress", advance)
    return session_id


def _insert_session(tx: Transaction, session: ImportedSession, now: int) -> tuple[str, int]:
    """Create an imported session; return its id and its row number."""
    source = session.source
    session_id = _find_free_id(tx, session)
    row = tx.one(
        "imported_session_insert",
        {
            "id": session_id,
            "key": session.key,
            "agent": storable(session.agent),
            "platform": storable(source.platform),
            "chat_type": storable(source.chat_type),
            "person": session.person,
            "owner": session.person or session.key,
            "origin": to_json(source.to_dict()),
            "display_name": storable(session.display_name),
            "created_at": session.created_at,
        },
    )
    assert row is not None
    ref = int(row[0])
    if session.person is not None:
        session_rows.remember_person(tx, source, session.person, from_micros(now))
    session_rows.insert_first_revision(
        tx, ref, View.whole(ref), "start", from_micros(session.created_at), 0
    )
    session_rows.record_event(
        tx, ref, from_micros(now), "began", {"from": session.name.partition(":")[0]}
    )
    tx.run("unindexed_put", {"session": ref})
    tx.run("import_insert", {"name": session.name, "session": ref, "now": now})
    return session_id, ref


def _find_free_id(tx: Transaction, session: ImportedSession) -> str:
    """Return the id the session had, or one derived from its name if that id is in use."""
    if session.id is not None and tx.one("session_by_id", {"id": session.id}) is None:
        return session.id
    stamp = from_micros(session.created_at).strftime("%Y%m%d_%H%M%S")
    bits = session.name
    while True:
        bits = blake2b(bits.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
        session_id = f"{stamp}_{bits}"
        if tx.one("session_by_id", {"id": session_id}) is None:
            return session_id


def _apply_summary(
    tx: Transaction,
    session_id: str,
    ref: int,
    session: ImportedSession,
    summary: ImportSummary,
    now: int,
) -> None:
    """Finish an imported session. It becomes current only if no newer session has its key."""
    ended_at, reason = summary.ended_at, summary.end_reason
    current = session_rows.get_current(tx, session.key) if ended_at is None else None
    if current is not None and _is_replaceable(tx, current, summary.updated_at):
        session_rows.mark_ended(
            tx, current, IMPORTED, from_micros(max(current.updated_at, summary.created_at))
        )
    elif current is not None:
        ended_at, reason = summary.updated_at, IMPORTED
    tx.run(
        "imported_session_finish",
        {
            "ref": ref,
            "title": _find_free_title(tx, ref, session, summary.title),
            "created_at": summary.created_at,
            "updated_at": summary.updated_at,
            "ended_at": ended_at,
            "end_reason": storable(reason),
            "parent_id": storable(summary.parent_id),
            "parent_kind": summary.parent_kind,
            "last_prompt": summary.last_prompt,
            "model": storable(summary.model),
            "provider": storable(summary.provider),
            "metadata": to_json(summary.metadata),
        },
    )
    _enter_charges(tx, session_id, summary)
    _hide_messages(tx, ref, summary, now)
    if ended_at is None and session.derived_key is not None:
        _link_derived_key(tx, session.derived_key, session, now)
    details = {"reason": reason, "updated": from_micros(summary.updated_at).isoformat()}
    session_rows.record_event(tx, ref, from_micros(now), IMPORTED, details)


def _is_replaceable(tx: Transaction, current: SessionRow, updated_at: int) -> bool:
    """Return whether an imported session with that last activity may replace the current one.

    The current session must itself be imported, unchanged since then, and not newer. This happens
    when a conversation was reset in the other system between two imports.
    """
    row = tx.one("import_of_session", {"session": current.ref})
    return row is not None and not row[0] and current.updated_at <= updated_at


def _link_derived_key(tx: Transaction, derived: str, session: ImportedSession, now: int) -> None:
    """Link a derived key to the imported conversation, unless it has sessions or a link here.

    So the user's next message continues the imported conversation.
    """
    for statement in ("link_of", "session_current", "session_latest_ended"):
        if tx.one(statement, {"key": derived}) is not None:
            return
    add_import_link(tx, derived, session.key, session.person, now)


def _find_free_title(
    tx: Transaction, ref: int, session: ImportedSession, title: str | None
) -> str | None:
    """Return the title, with a number appended if its owner has it already; None if it is empty."""
    base_title = titles.title_line(storable(title or ""))[: titles.MAX_LENGTH].rstrip()
    owner = session.person or session.key
    number, candidate = 1, base_title
    while candidate:
        if session_rows.is_title_free(tx, owner, candidate, ref=ref):
            return candidate
        number += 1
        suffix = f" ({number})"
        candidate = base_title[: titles.MAX_LENGTH - len(suffix)] + suffix
    return None


def _enter_charges(tx: Transaction, session_id: str, summary: ImportSummary) -> None:
    for charge in summary.charges:
        add_in(tx, session_id, charge, summary.updated_at)
    if summary.side_charges:
        session = session_rows.require(tx, session_id)
        params = {
            "id": session_id,
            "turn": session.turns,
            "platform": session.platform,
            "person": session.person,
            "now": summary.updated_at,
        }
        for charge in summary.side_charges:
            usage_rows.insert_call(tx, {**params, **charge})


def _hide_messages(tx: Transaction, ref: int, summary: ImportSummary, now: int) -> None:
    """Leave out of the view the messages that the other system had hidden or summarised."""
    if not summary.hidden and not summary.consolidated:
        return
    current = session_rows.current_view_of(tx, ref)
    spans = _subtract(Span(ref, 1, current.last_seq), summary.hidden)
    before = current.last_seq
    summary_seq, after = None, None
    if summary.consolidated:
        seq = _seq_of_shown(spans, summary.consolidated)
        after = Span(ref, seq, seq)
        if summary.summary:
            current, summary_seq = _append_summary(tx, current, summary.summary, now)
    view = view_of_spans(spans, ref, current.last_seq)
    add_revision(
        tx, current, view, "import", now, before=before, summary_seq=summary_seq, after=after
    )


def _append_summary(
    tx: Transaction, current: CurrentView, text: str, now: int
) -> tuple[CurrentView, int]:
    """Append a summary message; return the view after it and its sequence number."""
    message = draft({"role": SUMMARY, "content": text})
    seq = add_messages(tx, current.ref, [Entry(message, INTERNAL)], now)
    return current._replace(last_seq=seq), seq


def _subtract(whole: Span, hidden: Sequence[tuple[int, int]]) -> list[Span]:
    """Return the parts of a span that remain without the hidden ranges."""
    spans: list[Span] = []
    first = whole.first
    for begin, end in hidden:
        if begin > first:
            spans.append(Span(whole.log, first, begin - 1))
        first = end + 1
    return [*spans, Span(whole.log, first, whole.last)] if first <= whole.last else spans


def _seq_of_shown(spans: Sequence[Span], count: int) -> int:
    """Return the sequence number of the `count`-th shown message, or of the last one."""
    for span in spans:
        if count <= span.size:
            return span.first + count - 1
        count -= span.size
    return spans[-1].last
