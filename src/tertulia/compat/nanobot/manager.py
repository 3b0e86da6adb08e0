"""nanobot's session manager: sessions by key, given out as values and saved whole.

For each value that was given out the manager remembers its base: the stored state that the value
was made from. Therefore saving finds the changes without reading the transcript, and two programs
that save the same session lose nothing of each other: messages that both added are all kept. Only
if both changed messages that were already stored, the second save is refused. A base is never
trusted: each save compares its version with the store.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self
from weakref import WeakValueDictionary

from tertulia.compat import store_folder
from tertulia.compat.local_times import to_local, to_utc
from tertulia.compat.nanobot.session import Session, copy_json
from tertulia.compat.nanobot.session_keys import find_session_folders, key_of, source_of
from tertulia.core import session as core
from tertulia.core.arguments import checks_arguments
from tertulia.core.message import from_json, to_json
from tertulia.core.policy import Policies, ResetPolicy
from tertulia.core.settings import Settings
from tertulia.errors import Error, StaleWrite
from tertulia.records import session_rows
from tertulia.records.imports import IMPORTED
from tertulia.records.sessions.open import begin_session
from tertulia.records.transcript import replace
from tertulia.records.transcript.replace import Part, Snapshot
from tertulia.storage.base import Transaction
from tertulia.storage.rows import SessionRow, from_micros
from tertulia.store import Store

__all__ = ["Session", "SessionManager"]

log = logging.getLogger("tertulia.compat.nanobot")

# nanobot never ends a session automatically.
_SETTINGS: Final = Settings(policies=Policies(default=ResetPolicy(mode="none")))
_PAGE_SIZE = 1000
# How many sessions are kept in memory after their last use.
_MAX_RECENT = 256


class _Base(NamedTuple):
    """The stored state that a value was made from."""

    key: str
    session_id: str  # empty if the session was not stored
    version: int
    snapshot: Snapshot
    messages: list[Any]  # the same objects as in the value, to recognise them by identity
    copies: list[Any]  # deep copies, to recognise changes
    metadata: dict[str, Any]


class _StoredSession(NamedTuple):
    """A session in the store, as read or after it was saved."""

    row: SessionRow
    snapshot: Snapshot
    messages: list[Any]
    copies: list[Any]
    metadata: dict[str, Any]

    def base(self, key: str) -> _Base:
        """Return the base of a value with these messages."""
        row = self.row
        messages, metadata = list(self.messages), copy_json(self.metadata)
        return _Base(key, row.id, row.version, self.snapshot, messages, self.copies, metadata)


def _empty_base(key: str) -> _Base:
    return _Base(key, "", 0, Snapshot([], 0), [], [], {})


@checks_arguments
class SessionManager:
    """The sessions of a workspace. `store` is the Tertulia store that contains them."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = Path(workspace).expanduser()
        self.sessions_dir = self.workspace / "sessions"
        self._lock = threading.RLock()
        # A caller that still has a value gets the same one again; recent ones are also kept here.
        self._alive: WeakValueDictionary[str, Session] = WeakValueDictionary()
        self._recent: OrderedDict[str, Session] = OrderedDict()
        self._bases: dict[int, _Base] = {}
        self.store = store_folder.open_store(self.sessions_dir, _SETTINGS)
        self.imported = store_folder.import_once(
            self.store, "nanobot", find_session_folders(self.workspace)
        )

    def get_or_create(self, key: str) -> Session:
        """Return the session of a key; an unknown one is new, and stored when it is saved.

        While a value is in use, the same one is returned, updated with the changes of others.
        """
        with self._lock:
            session = self._alive.get(key)
            if session is None:
                session, base = self._read(key)
                self._set_base(session, base)
            elif not self._is_fresh(session):
                read, base = self._read(key)
                _copy_into(session, read)
                self._set_base(session, base._replace(messages=list(session.messages)))
            self._mark_used(session)
            return session

    def save(self, session: Session, *, fsync: bool = False) -> None:
        """Store the changes. They are durable when this returns, with or without `fsync`.

        Changes of others are kept, and are in the session afterwards. Raise StaleWrite if both
        changed messages that were already stored.
        """
        with self._lock:
            base = self._bases.get(id(session))
            if base is not None and base.key != session.key:
                base = None  # the caller changed the key: it is another session now
            context = self.store.context
            now = context.clock.now()
            saved = context.write(lambda tx: _save(tx, self.store, session, base, now))
            if saved is not None:
                context.notify_indexer()
                _update_value(session, saved)
                self._set_base(session, saved.base(session.key))
            self._mark_used(session)

    def flush_all(self) -> int:
        """Save all sessions in use and return their number.

        If one cannot be saved, the others are saved all the same; then the first error is raised.
        """
        with self._lock:
            problems: list[Error] = []
            sessions = list(self._alive.values())
            for session in sessions:
                try:
                    self.save(session)
                except Error as problem:
                    log.warning(
                        "session %r was not saved, flushing the others: %s", session.key, problem
                    )
                    problems.append(problem)
            if problems:
                raise problems[0]
            return len(sessions)

    def invalidate(self, key: str) -> None:
        """Forget the value of a key; changes that were not saved are lost."""
        with self._lock:
            self._alive.pop(key, None)
            self._recent.pop(key, None)

    def delete_session(self, key: str) -> bool:
        """Delete all sessions of a key with their messages and their export.

        Return whether there was any session.
        """
        with self._lock:
            self.invalidate(key)
            stored_key = self.store.sessions.key(source_of(key))
            has_any = False
            while page := self.store.sessions.find(key=stored_key, limit=_PAGE_SIZE).items:
                has_any = True
                for session in page:
                    self.store.sessions.delete(session.id)
            store_folder.export_path(self.workspace, key, colons=True).unlink(missing_ok=True)
            return has_any

    def read_session_file(self, key: str) -> dict[str, Any] | None:
        """Return a stored session as plain values; None if it is not stored."""
        session = self._get_current(key)
        if session is None:
            return None
        return {
            **_to_dict(session),
            "metadata": _without_import_note(session.metadata),
            "messages": self.store.transcript(session.id).load(),
        }

    def list_sessions(self) -> list[dict[str, Any]]:
        """Return key, times and path of every session, newest activity first.

        The path is the one to which `export` writes the session.
        """
        return [
            {
                **fields,
                "path": str(store_folder.export_path(self.workspace, fields["key"], colons=True)),
            }
            for fields in map(_to_dict, self._find_current())
        ]

    def export(self, key: str) -> Path | None:
        """Write a session in nanobot's file format and return the path; None if it is not stored.

        The first line describes the session, each of the others is a message.
        """
        session, base = self._read(key)
        if not base.session_id:
            return None
        head = {
            "_type": "metadata",
            "key": key,
            "created_at": session.created_at.isoformat(),
            "updated_at": session.updated_at.isoformat(),
            "metadata": session.metadata,
            "last_consolidated": session.last_consolidated,
        }
        return store_folder.export(self.workspace, key, [head, *session.messages], colons=True)

    @staticmethod
    def safe_key(key: str) -> str:
        """Return a file name for a key: always the same, and different for every other key."""
        return store_folder.safe_name(key, colons=True)

    def close(self) -> None:
        """Close the store; saved sessions are already stored."""
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- private

    def _get_current(self, key: str) -> core.Session | None:
        return self.store.sessions.current(self.store.sessions.key(source_of(key)))

    def _find_current(self) -> Iterator[core.Session]:
        cursor = None
        while True:
            page = self.store.sessions.find(state="current", limit=_PAGE_SIZE, cursor=cursor)
            yield from page.items
            cursor = page.next
            if cursor is None:
                return

    def _is_fresh(self, session: Session) -> bool:
        """Return whether a value needs no update: it is current, or its owner changed it."""
        stored = self._get_current(session.key)
        base = self._bases[id(session)]
        version = ("", 0) if stored is None else (stored.id, stored.version)
        return version == (base.session_id, base.version) or _has_changed(session, base)

    def _read(self, key: str) -> tuple[Session, _Base]:
        """Return the value of a key and its base; both are empty if the key is not stored."""
        stored_key = self.store.sessions.key(source_of(key))

        def work(tx: Transaction) -> _StoredSession | None:
            row = session_rows.get_current(tx, stored_key)
            if row is None:
                return None
            snapshot, bodies = _read_snapshot(tx, row)
            metadata = _without_import_note(from_json(row.metadata))
            return _StoredSession(row, snapshot, bodies, copy_json(bodies), metadata)

        stored = self.store.context.read(work)
        if stored is None:
            return Session(key), _empty_base(key)
        created_at, updated_at = map(from_micros, (stored.row.created_at, stored.row.updated_at))
        session = Session(
            key,
            stored.messages,
            to_local(created_at),
            to_local(updated_at),
            stored.metadata,
            stored.snapshot.offset,
        )
        return session, stored.base(key)

    def _set_base(self, session: Session, base: _Base) -> None:
        if id(session) not in self._bases:
            weakref.finalize(session, self._bases.pop, id(session), None)
        self._bases[id(session)] = base

    def _mark_used(self, session: Session) -> None:
        """Keep a value in memory as the most recent one, and drop the oldest unchanged ones."""
        self._alive[session.key] = self._recent[session.key] = session
        self._recent.move_to_end(session.key)
        for key in list(self._recent)[: max(0, len(self._recent) - _MAX_RECENT)]:
            oldest = self._recent[key]
            # A value with unsaved changes must be found again, so it is kept.
            if not _has_changed(oldest, self._bases[id(oldest)]):
                del self._recent[key]


def _to_dict(session: core.Session) -> dict[str, Any]:
    return {
        "key": key_of(session.origin),
        "created_at": to_local(session.created_at).isoformat(),
        "updated_at": to_local(session.updated_at).isoformat(),
    }


def _read_snapshot(tx: Transaction, row: SessionRow) -> tuple[Snapshot, list[dict[str, Any]]]:
    """Return a transcript; while it is unchanged since its import, with nanobot's own offset.

    The store's offset stops before the last user message, so that a model always gets a message.
    """
    snapshot, bodies = replace.snapshot(tx, row)
    note = from_json(row.metadata).get(IMPORTED)
    offset = note.get("last_consolidated") if isinstance(note, dict) else None
    if not isinstance(offset, int) or not snapshot.offset < offset <= len(bodies):
        return snapshot, bodies
    is_unchanged = session_rows.current_view_of(tx, row.ref).made_by in ("start", "import")
    return (snapshot._replace(offset=offset) if is_unchanged else snapshot), bodies


def _has_changed(session: Session, base: _Base) -> bool:
    return (
        session.messages != base.copies
        or session.metadata != base.metadata
        or session.last_consolidated != base.snapshot.offset
    )


def _copy_into(session: Session, other: Session) -> None:
    """Replace the contents of a value by those of another one."""
    session.messages[:] = other.messages
    session.metadata.clear()
    session.metadata.update(other.metadata)
    session.last_consolidated = other.last_consolidated
    session.created_at, session.updated_at = other.created_at, other.updated_at


# -- saving


def _save(
    tx: Transaction, store: Store, session: Session, base: _Base | None, now: datetime
) -> _StoredSession | None:
    """Store the changes since the base.

    Return None if the session was ended or deleted and there are no changes; raise StaleWrite if
    there are.
    """
    replace.check_messages(session.messages)
    source = source_of(session.key)
    key = store.sessions.key(source)
    row = session_rows.get_current(tx, key)
    if base is not None and base.session_id and (row is None or row.id != base.session_id):
        if not _has_changed(session, base):
            return None
        raise _stale_write(session.key, "it was ended or deleted, so its changes cannot be stored")
    created_at, updated_at = to_utc(session.created_at), to_utc(session.updated_at)
    if row is None:
        person = session_rows.owner_person(source, store.context)
        row = begin_session(tx, store.context, source, key, created_at, person=person)
        base = _empty_base(session.key)
        plan = _Plan(base.snapshot, list(session.messages), session.last_consolidated)
    else:
        plan = _make_plan(tx, row, session, base)
        if base is not None and plan.stored_messages is not None:
            updated_at = max(updated_at, from_micros(row.updated_at))
    snapshot = replace.apply(tx, row, plan.snapshot, plan.parts, now, offset=plan.offset)
    metadata = _merge_metadata(session.metadata, base, from_json(row.metadata))
    if to_json(metadata) != row.metadata:
        session_rows.set_metadata(tx, row, metadata)
    replace.set_times(tx, row, created_at, updated_at)
    stored = session_rows.get_current(tx, key)
    assert stored is not None
    messages, copies = _saved_messages(session, base, plan)
    return _StoredSession(stored, snapshot, messages, copies, _without_import_note(metadata))


class _Plan(NamedTuple):
    """The parts of a snapshot's next version.

    `stored_messages` are the messages in the store, if others may have changed them.
    """

    snapshot: Snapshot
    parts: list[Part]
    offset: int
    stored_messages: list[Any] | None = None


def _make_plan(tx: Transaction, row: SessionRow, session: Session, base: _Base | None) -> _Plan:
    if base is not None and base.version == row.version:
        return _Plan(
            base.snapshot, _parts(session.messages, base), _requested_offset(session, base)
        )
    snapshot, bodies = _read_snapshot(tx, row)
    if base is None:
        # The base of the value is unknown: its contents replace the stored ones.
        parts = replace.align(bodies, session.messages)
        return _Plan(snapshot, parts, session.last_consolidated, bodies)
    return _merge(session, base, snapshot, bodies)


def _saved_messages(
    session: Session, base: _Base | None, plan: _Plan
) -> tuple[list[Any], list[Any]]:
    """Return the messages as they are stored now, and deep copies of them."""
    stored = plan.stored_messages
    if stored is not None:
        messages = [stored[part] if isinstance(part, int) else part for part in plan.parts]
        return messages, copy_json(messages)
    before = [] if base is None else base.copies
    messages = list(session.messages)
    copies = [before[part] if isinstance(part, int) else copy_json(part) for part in plan.parts]
    return messages, copies


def _parts(messages: list[Any], base: _Base) -> list[Part]:
    """Return the messages, with each unchanged one replaced by its index in the base."""
    numbers = {id(message): number for number, message in enumerate(base.messages)}
    parts: list[Part] = []
    last = -1
    for message in messages:
        number = numbers.get(id(message), last + 1)
        if last < number < len(base.copies) and base.copies[number] == message:
            last = number
            parts.append(number)
        else:
            parts.append(message)
    # A caller that creates every message object anew may still have kept the newest messages.
    return parts if last >= 0 else replace.align(base.copies, messages)


def _merge(session: Session, base: _Base, snapshot: Snapshot, bodies: list[Any]) -> _Plan:
    """Apply the changes of a value to the messages that others stored since it was made.

    Raise StaleWrite if both changed messages of the base.
    """
    own_parts = _parts(session.messages, base)
    added = _count_new_at_end(own_parts)
    head, tail = own_parts[: len(own_parts) - added], own_parts[len(own_parts) - added :]
    before = base.snapshot.positions
    if head == list(range(len(before))):
        offset = _move_offset(_requested_offset(session, base), base, snapshot)
        parts = [*range(len(snapshot.positions)), *tail]
    elif snapshot.positions[: len(before)] == before:
        added_by_others = range(len(before), len(snapshot.positions))
        offset = _requested_offset(session, base)
        offset += len(added_by_others) if offset > len(head) else 0
        parts = [*head, *added_by_others, *tail]
    else:
        raise _stale_write(
            session.key, "another program also changed messages that were already stored"
        )
    return _Plan(snapshot, parts, offset, bodies)


def _requested_offset(session: Session, base: _Base) -> int:
    """Return the offset that the owner set, or 0 if it is unchanged.

    An unchanged offset stays at its message instead, so that no message is skipped if the owner
    trims the list and does not adjust the offset.
    """
    offset = session.last_consolidated
    return 0 if offset == base.snapshot.offset else offset


def _count_new_at_end(parts: list[Part]) -> int:
    old = (number for number, part in enumerate(reversed(parts)) if isinstance(part, int))
    return next(old, len(parts))


def _move_offset(offset: int, base: _Base, snapshot: Snapshot) -> int:
    """Return the offset in the snapshot, followed by new messages, of an offset in the value."""
    count = len(base.snapshot.positions)
    if offset > count:
        return len(snapshot.positions) + offset - count
    last = base.snapshot.positions[offset - 1] if offset > 0 else None
    positions = enumerate(snapshot.positions, 1)
    return next((number for number, position in positions if position == last), 0)


def _without_import_note(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata without the note of an import, which stays in the store."""
    note = stored.get(IMPORTED)
    is_note = isinstance(note, dict) and note.get("from") == "nanobot"
    return {name: value for name, value in stored.items() if name != IMPORTED or not is_note}


def _merge_metadata(
    own: Mapping[str, Any], base: _Base | None, stored: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the stored metadata with the changes that the owner made since the base."""
    before = _without_import_note(stored) if base is None else base.metadata
    absent = object()
    changed = {name: value for name, value in own.items() if before.get(name, absent) != value}
    unchanged = {name: value for name, value in stored.items() if name in own or name not in before}
    return {**unchanged, **changed}


def _update_value(session: Session, saved: _StoredSession) -> None:
    """Update a value to the saved state, which may have messages of others or another offset."""
    is_same = len(saved.messages) == len(session.messages) and all(
        message is other for message, other in zip(saved.messages, session.messages, strict=True)
    )
    if not is_same:
        session.messages[:] = saved.messages
    if session.metadata != saved.metadata:
        session.metadata.clear()
        session.metadata.update(saved.metadata)
    session.last_consolidated = saved.snapshot.offset
    updated_at = from_micros(saved.row.updated_at)
    if to_utc(session.updated_at) != updated_at:
        session.updated_at = to_local(updated_at)


def _stale_write(key: str, reason: str) -> StaleWrite:
    return StaleWrite(
        f"The session {key!r} was not saved: {reason}.",
        hint="Call invalidate(key) and get_or_create(key), then repeat the change.",
    )
