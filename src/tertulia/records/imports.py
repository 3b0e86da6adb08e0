"""Sessions that arrive from another system: many in one transaction, and each of them once.

A session comes in parcels. The first one makes it, each brings messages, the last one settles what
is known of it as a whole. A parcel and the note of how far the session has come are one
transaction, so that an import that was killed goes on where it stopped.

While it arrives, a session has ended: it becomes current, if it was, with its last parcel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from tertulia.core import title as titles
from tertulia.core.history.view import (
    Span,
    View,
    opened,
)
from tertulia.core.message import INTERNAL, SUMMARY, Draft, draft, to_json
from tertulia.core.source import Source
from tertulia.errors import StaleWrite
from tertulia.records import session_rows
from tertulia.records.store_context import StoreContext
from tertulia.records.transcript.log import append_messages, insert_messages
from tertulia.records.transcript.revisions import add_revision
from tertulia.records.usage import Charge
from tertulia.storage.base import Transaction
from tertulia.storage.rows import CurrentView, SessionRow, from_micros, session_row, to_micros

IMPORTED = "imported"


class ImportedSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session as it is known before its messages are read."""

    name: str  # unique among everything that ever arrives
    id: str | None  # the id to keep, if nobody has it
    key: str
    agent: str
    source: Source
    person: str | None
    display_name: str | None
    created_at: int
    derived_key: str | None = None  # the key that its person's next message has, if it is another


class ImportedMessage(NamedTuple):
    """A message on its way."""

    draft: Draft
    at: int
    kind: str | None


class ImportSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a session when all of its messages are here."""

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
    hidden: tuple[tuple[int, int], ...] = ()  # first and last number of what is not shown
    consolidated: int = 0  # how many of the first messages the model is no longer shown
    summary: str | None = None  # what it is shown instead


class ImportBatch(NamedTuple):
    """Some messages of one session, and what happens with it."""

    newcomer: ImportedSession
    begins: bool
    taken_before: int
    entries: Sequence[ImportedMessage]
    digest: str
    settlement: ImportSummary | None
    was_complete: bool = False


class ImportProgress(NamedTuple):
    """How far a session has come."""

    session_id: str
    ref: int
    taken: int
    digest: str
    is_complete: bool
    has_gone_on: bool  # something was said in it here


class Imports:
    """The sessions of a store that came from elsewhere."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context
        self._db = context.db

    def standing(self, name: str) -> ImportProgress | None:
        """How far the session of that name has come; None if nothing of it is here."""
        return self._db.read(lambda tx: _standing(tx, name))

    def in_the_way(self, key: str, updated_at: int) -> str | None:
        """The session that stays current for a key when one with that last activity comes."""

        def work(tx: Transaction) -> str | None:
            current = _current(tx, key)
            if current is None or _makes_way(tx, current, updated_at):
                return None
            return current.id

        return self._db.read(work)

    def write(self, parcels: Sequence[ImportBatch]) -> list[str]:
        """Store parcels in one transaction; the ids of their sessions."""
        now = to_micros(self._context.clock.now())
        return self._db.write(lambda tx: [_take(tx, parcel, now) for parcel in parcels])


class Digest:
    """Of messages one after the other, so that the first of them can be known again."""

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=16)

    def add(self, item: Draft) -> None:
        self._hash.update(item.body.encode())
        if item.away is not None:
            self._hash.update(item.away.encode())

    def __str__(self) -> str:
        return self._hash.hexdigest()


def _standing(tx: Transaction, name: str) -> ImportProgress | None:
    row = tx.one("newcomer_get", {"name": name})
    if row is None:
        return None
    session_id, ref, taken, digest, is_complete, has_gone_on = row
    return ImportProgress(session_id, ref, taken, digest, bool(is_complete), bool(has_gone_on))


def _take(tx: Transaction, parcel: ImportBatch, now: int) -> str:
    name = parcel.newcomer.name
    standing = _standing(tx, name)
    if (standing is None) != parcel.begins or (standing and standing.taken != parcel.taken_before):
        raise StaleWrite(
            "Another import of the same sessions is under way.",
            hint="Let one of them finish, then run the import again.",
        )
    session_id, ref = standing[:2] if standing else _begin(tx, parcel.newcomer, now)
    drafts = [entry.draft for entry in parcel.entries]
    if drafts:
        append_messages(
            tx, session_id, drafts, None, now, is_activity=False,
            times=[entry.at for entry in parcel.entries],
            kinds=[entry.kind for entry in parcel.entries],
        )  # fmt: skip
    settlement = parcel.settlement
    if settlement is not None and parcel.was_complete:
        tx.run("arrived_later", {"ref": ref, "updated_at": settlement.updated_at})
    elif settlement is not None:
        _settle(tx, session_id, ref, parcel.newcomer, settlement, now)
    advance = {
        "name": name,
        "taken": parcel.taken_before + len(drafts),
        "digest": parcel.digest,
        "is_complete": int(settlement is not None or parcel.was_complete),
    }
    tx.run("newcomer_advance", advance)
    return session_id


def _begin(tx: Transaction, newcomer: ImportedSession, now: int) -> tuple[str, int]:
    source = newcomer.source
    session_id = _free_id(tx, newcomer)
    row = tx.one(
        "arriving_insert",
        {
            "id": session_id,
            "key": newcomer.key,
            "agent": session_rows.storable(newcomer.agent),
            "platform": session_rows.storable(source.platform),
            "chat_type": session_rows.storable(source.chat_type),
            "person": newcomer.person,
            "owner": newcomer.person or newcomer.key,
            "origin": to_json(source.to_dict()),
            "display_name": session_rows.storable(newcomer.display_name),
            "created_at": newcomer.created_at,
        },
    )
    assert row is not None
    ref = int(row[0])
    if newcomer.person is not None:
        session_rows.remember_person(tx, source, newcomer.person, from_micros(now))
    session_rows.first_view(tx, ref, View.whole(ref), "start", from_micros(newcomer.created_at), 0)
    session_rows.event(
        tx, ref, from_micros(now), "began", {"from": newcomer.name.partition(":")[0]}
    )
    tx.run("unindexed_put", {"session": ref})
    tx.run("newcomer_insert", {"name": newcomer.name, "session": ref, "now": now})
    return session_id, ref


def _free_id(tx: Transaction, newcomer: ImportedSession) -> str:
    """The id it had, else one that follows from its name."""
    if newcomer.id is not None and tx.one("session_by_id", {"id": newcomer.id}) is None:
        return newcomer.id
    stamp = from_micros(newcomer.created_at).strftime("%Y%m%d_%H%M%S")
    bits = newcomer.name
    while True:
        bits = blake2b(bits.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
        found = f"{stamp}_{bits}"
        if tx.one("session_by_id", {"id": found}) is None:
            return found


def _settle(
    tx: Transaction,
    session_id: str,
    ref: int,
    newcomer: ImportedSession,
    found: ImportSummary,
    now: int,
) -> None:
    ended_at, reason = found.ended_at, found.end_reason
    current = _current(tx, newcomer.key) if ended_at is None else None
    if current is not None and _makes_way(tx, current, found.updated_at):
        session_rows.end(
            tx, current, IMPORTED, from_micros(max(current.updated_at, found.created_at))
        )
    elif current is not None:
        ended_at, reason = found.updated_at, IMPORTED
    tx.run(
        "arriving_settle",
        {
            "ref": ref,
            "title": _free_title(tx, ref, newcomer, found.title),
            "created_at": found.created_at,
            "updated_at": found.updated_at,
            "ended_at": ended_at,
            "end_reason": session_rows.storable(reason),
            "parent_id": session_rows.storable(found.parent_id),
            "parent_kind": found.parent_kind,
            "last_prompt": found.last_prompt,
            "model": session_rows.storable(found.model),
            "provider": session_rows.storable(found.provider),
            "metadata": to_json(found.metadata),
        },
    )
    _charge(tx, session_id, found)
    _show(tx, ref, found, now)
    if ended_at is None and newcomer.derived_key is not None:
        _link(tx, newcomer.derived_key, newcomer.key, now)
    told = {"reason": reason, "updated": from_micros(found.updated_at).isoformat()}
    session_rows.event(tx, ref, from_micros(now), IMPORTED, told)


def _current(tx: Transaction, key: str) -> SessionRow | None:
    row = tx.one("session_current", {"key": key})
    return None if row is None else session_row(row)


def _makes_way(tx: Transaction, current: SessionRow, updated_at: int) -> bool:
    """Whether a current session only came from elsewhere, and something newer comes now.

    So it is when a conversation was reset there between two imports.
    """
    row = tx.one("newcomer_of", {"session": current.ref})
    return row is not None and not row[0] and current.updated_at <= updated_at


def _link(tx: Transaction, derived: str, key: str, now: int) -> None:
    """Let the person's next message find the conversation, unless it has one of its own here."""
    known = {"key": derived}
    for statement in ("link_of", "session_current", "session_latest_ended"):
        if tx.one(statement, known) is not None:
            return
    tx.run("link_insert", {"key": derived, "shared_key": key, "now": now})


def _free_title(
    tx: Transaction, ref: int, newcomer: ImportedSession, title: str | None
) -> str | None:
    words = titles.one_line(session_rows.storable(title) or "")[: titles.LENGTH].rstrip()
    owner = newcomer.person or newcomer.key
    number, found = 1, words
    while found:
        if tx.one("session_title_taken", {"owner": owner, "title": found, "ref": ref}) is None:
            return found
        number += 1
        mark = f" ({number})"
        found = words[: titles.LENGTH - len(mark)] + mark
    return None


def _charge(tx: Transaction, session_id: str, found: ImportSummary) -> None:
    base = {
        "id": session_id, "count": 0, "turns": 0, "is_activity": False, "now": found.updated_at,
    }  # fmt: skip
    owner: tuple[Any, ...] | None = None
    for charge in found.charges:
        row = tx.one("session_append_with_usage", {**base, **charge})
        assert row is not None
        owner = row[2:5]
        tx.run("usage_insert", {**base, **charge, **_owner(owner)})
    for charge in found.side_charges:
        if owner is None:
            session = session_rows.require(tx, session_id)
            owner = (session.turns, session.platform, session.person)
        tx.run("usage_insert", {**base, **charge, **_owner(owner)})


def _owner(found: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(("turn", "platform", "person"), found, strict=True))


def _show(tx: Transaction, ref: int, found: ImportSummary, now: int) -> None:
    """Leave out what the other system no longer showed, and what it had summed up."""
    if not found.hidden and not found.consolidated:
        return
    seen = session_rows.current_view_of(tx, ref)
    spans = _without(Span(ref, 1, seen.last_seq), found.hidden)
    before = seen.last_seq
    summary_seq, after = None, None
    if found.consolidated:
        place = _place_of(spans, found.consolidated)
        after = Span(ref, place, place)
        if found.summary:
            seen, summary_seq = _put_summary(tx, seen, found.summary, now)
    view = opened(spans, ref, seen.last_seq)
    add_revision(tx, seen, view, "import", now, before=before, summary_seq=summary_seq, after=after)


def _put_summary(
    tx: Transaction, seen: CurrentView, words: str, now: int
) -> tuple[CurrentView, int]:
    seq = seen.last_seq + 1
    told = draft({"role": SUMMARY, "content": words})
    tx.run("session_add_rows", {"ref": seen.ref, "count": 1})
    insert_messages(tx, seen.ref, seq, [told], now, turns=[seen.turns], kind=INTERNAL)
    return seen._replace(last_seq=seq), seq


def _without(whole: Span, hidden: Sequence[tuple[int, int]]) -> list[Span]:
    found: list[Span] = []
    first = whole.first
    for begin, end in hidden:
        if begin > first:
            found.append(Span(whole.log, first, begin - 1))
        first = end + 1
    return [*found, Span(whole.log, first, whole.last)] if first <= whole.last else found


def _place_of(spans: Sequence[Span], count: int) -> int:
    """The sequence number of the message with that number among those that are shown."""
    for span in spans:
        if count <= span.size:
            return span.first + count - 1
        count -= span.size
    return spans[-1].last
