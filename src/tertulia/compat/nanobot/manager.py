"""nanobot's session manager: conversations by key, handed out as values and saved whole.

Of a value that was handed out it is remembered what it was made from. So saving finds what changed
without reading the transcript, and two programs which save the same conversation lose nothing of
each other: what both added stays. Only where both changed what was there already, the second one
is refused. The memory decides nothing: whether it still holds is asked of the store each time.
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
from tertulia.compat.local_times import (
    aware,
    local,
)
from tertulia.compat.nanobot.keys import (
    key_of,
    left_behind,
    source_of,
)
from tertulia.compat.nanobot.session import Session, copied
from tertulia.core import session as core
from tertulia.core.message import from_json
from tertulia.core.policy import Policies, ResetPolicy
from tertulia.core.settings import Settings
from tertulia.errors import Error, StaleWrite
from tertulia.records import session_rows
from tertulia.records.transcript import replace
from tertulia.records.transcript.replace import (
    Part,
    Snapshot,
)
from tertulia.storage.base import Transaction
from tertulia.storage.rows import SessionRow, from_micros
from tertulia.store import Store

__all__ = ["Session", "SessionManager"]

log = logging.getLogger("tertulia.compat.nanobot")

# That system ends no conversation by itself.
_SETTINGS: Final = Settings(policies=Policies(default=ResetPolicy(mode="none")))
_PAGE = 1000
# Where an import keeps what the store has no place for.
_NOTE = "imported"
_LATEST = 256


class _Base(NamedTuple):
    """What a value was made from: the session it was read from, and its parts as they were."""

    key: str
    session_id: str  # empty: it was not stored
    version: int
    held: Snapshot
    given: list[Any]  # the very messages, to be known again
    copies: list[Any]  # and what they said
    metadata: dict[str, Any]


class _Saved(NamedTuple):
    """How a conversation stands after it was saved."""

    row: SessionRow
    held: Snapshot
    messages: list[Any]
    copies: list[Any]
    metadata: dict[str, Any]

    def base(self, key: str) -> _Base:
        row = self.row
        given, metadata = list(self.messages), copied(self.metadata)
        return _Base(key, row.id, row.version, self.held, given, self.copies, metadata)


def _nothing(key: str) -> _Base:
    return _Base(key, "", 0, Snapshot([], 0), [], [], {})


class SessionManager:
    """The conversations of a workspace. `store` is the Tertulia store below."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = Path(workspace).expanduser()
        self.sessions_dir = self.workspace / "sessions"
        self._lock = threading.RLock()
        # Whoever holds a value gets the same one again; the latest are held here as well.
        self._alive: WeakValueDictionary[str, Session] = WeakValueDictionary()
        self._latest: OrderedDict[str, Session] = OrderedDict()
        self._bases: dict[int, _Base] = {}
        self.store = store_folder.open_in(self.sessions_dir, _SETTINGS)
        self.imported = store_folder.import_once(self.store, "nanobot", left_behind(self.workspace))

    def get_or_create(self, key: str) -> Session:
        """The conversation of a key; an unknown one is new, and stored when it is saved.

        While a value is in use, this gives the same one, with what others stored meanwhile.
        """
        with self._lock:
            session = self._alive.get(key)
            if session is None:
                session, base = self._read(key)
                self._know(session, base)
            elif not self._is_fresh(session):
                read, base = self._read(key)
                _become(session, read)
                self._know(session, base._replace(given=list(session.messages)))
            self._use(session)
            return session

    def save(self, session: Session, *, fsync: bool = False) -> None:
        """Store what changed. It is durable when this returns, with `fsync` or without.

        What others stored meanwhile stays, and stands in the session afterwards. `StaleWrite` where
        both changed what was there before.
        """
        with self._lock:
            base = self._bases.get(id(session))
            if base is not None and base.key != session.key:
                base = None  # its owner made another conversation of it
            context = self.store.context
            now = context.clock.now()
            saved = context.db.write(lambda tx: _save(tx, self.store, session, base, now))
            if saved is not None:
                context.notify()
                _bring_up_to_date(session, saved)
                self._know(session, saved.base(session.key))
            self._use(session)

    def flush_all(self) -> int:
        """Save every conversation that is in use; how many they were.

        One that cannot be saved keeps none of the others from it; its error comes at the end.
        """
        with self._lock:
            problems: list[Error] = []
            sessions = list(self._alive.values())
            for session in sessions:
                try:
                    self.save(session)
                except Error as problem:
                    log.warning("session %r was not flushed: %s", session.key, problem)
                    problems.append(problem)
            if problems:
                raise problems[0]
            return len(sessions)

    def invalidate(self, key: str) -> None:
        """Forget the value that was handed out; what was not saved of it is not stored."""
        with self._lock:
            self._alive.pop(key, None)
            self._latest.pop(key, None)

    def delete_session(self, key: str) -> bool:
        """Remove a conversation with everything it holds; whether there was any."""
        with self._lock:
            self.invalidate(key)
            stored_key = self.store.sessions.key(source_of(key))
            found = False
            while page := self.store.sessions.find(key=stored_key, limit=_PAGE).items:
                found = True
                for session in page:
                    self.store.sessions.delete(session.id)
            return found

    def read_session_file(self, key: str) -> dict[str, Any] | None:
        """A conversation as it is stored, as plain values; None if it is not."""
        found = self._current(key)
        if found is None:
            return None
        return {
            **_told(found),
            "metadata": _shown(found.metadata),
            "messages": self._messages(found),
        }

    def list_sessions(self) -> list[dict[str, Any]]:
        """Key, times and path of every conversation, newest activity first.

        The path is where its JSON lines stand after `export`.
        """
        return [
            {
                **told,
                "path": str(store_folder.export_path(self.workspace, told["key"], colons=True)),
            }
            for told in map(_told, self._all())
        ]

    def export(self, key: str) -> Path | None:
        """Write a conversation in that system's own form and tell where; None if it is not stored.

        The first line tells about the conversation, each of the others is a message.
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
        """A file name for a key: always the same, and no other key has it."""
        return store_folder.safe_name(key, colons=True)

    def close(self) -> None:
        """Close the store; what was saved is stored already."""
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

    # -- within

    def _current(self, key: str) -> core.Session | None:
        return self.store.sessions.current(self.store.sessions.key(source_of(key)))

    def _all(self) -> Iterator[core.Session]:
        cursor = None
        while True:
            page = self.store.sessions.find(state="current", limit=_PAGE, cursor=cursor)
            yield from page.items
            cursor = page.next
            if cursor is None:
                return

    def _messages(self, found: core.Session) -> list[dict[str, Any]]:
        return self.store.transcript(found.id).load()

    def _is_fresh(self, session: Session) -> bool:
        """Whether a value may be handed out as it is: nothing happened, or its owner changed it."""
        found = self._current(session.key)
        base = self._bases[id(session)]
        stored = ("", 0) if found is None else (found.id, found.version)
        return stored == (base.session_id, base.version) or _has_changed(session, base)

    def _read(self, key: str) -> tuple[Session, _Base]:
        stored_key = self.store.sessions.key(source_of(key))

        def work(tx: Transaction) -> _Saved | None:
            row = replace.current(tx, stored_key)
            if row is None:
                return None
            held, bodies = _hold(tx, row)
            return _Saved(row, held, bodies, copied(bodies), _shown(from_json(row.metadata)))

        found = self.store.context.db.read(work)
        if found is None:
            return Session(key), _nothing(key)
        created_at, updated_at = map(from_micros, (found.row.created_at, found.row.updated_at))
        session = Session(
            key,
            found.messages,
            local(created_at),
            local(updated_at),
            found.metadata,
            found.held.offset,
        )
        return session, found.base(key)

    def _know(self, session: Session, base: _Base) -> None:
        if id(session) not in self._bases:
            weakref.finalize(session, self._bases.pop, id(session), None)
        self._bases[id(session)] = base

    def _use(self, session: Session) -> None:
        self._alive[session.key] = self._latest[session.key] = session
        self._latest.move_to_end(session.key)
        for key in list(self._latest)[: max(0, len(self._latest) - _LATEST)]:
            old = self._latest[key]
            # What its owner changed and did not save must be found again.
            if not _has_changed(old, self._bases[id(old)]):
                del self._latest[key]


def _told(found: core.Session) -> dict[str, Any]:
    return {
        "key": key_of(found.origin),
        "created_at": local(found.created_at).isoformat(),
        "updated_at": local(found.updated_at).isoformat(),
    }


def _hold(tx: Transaction, row: SessionRow) -> tuple[Snapshot, list[dict[str, Any]]]:
    """A transcript with the offset that system had given it, for as long as it is as imported.

    The store goes no further than the person's last words, so that a model is always shown some.
    """
    held, bodies = replace.snapshot(tx, row)
    note = from_json(row.metadata).get(_NOTE)
    offset = note.get("last_consolidated") if isinstance(note, dict) else None
    if not isinstance(offset, int) or not held.offset < offset <= len(bodies):
        return held, bodies
    is_as_imported = session_rows.current_view_of(tx, row.ref).made_by in ("start", "import")
    return (held._replace(offset=offset) if is_as_imported else held), bodies


def _has_changed(session: Session, base: _Base) -> bool:
    return (
        session.messages != base.copies
        or session.metadata != base.metadata
        or session.last_consolidated != base.held.offset
    )


def _become(session: Session, other: Session) -> None:
    session.messages[:] = other.messages
    session.metadata.clear()
    session.metadata.update(other.metadata)
    session.last_consolidated = other.last_consolidated
    session.created_at, session.updated_at = other.created_at, other.updated_at


# -- saving


def _save(
    tx: Transaction, store: Store, session: Session, base: _Base | None, now: datetime
) -> _Saved | None:
    """Store what changed since the base; None where there is nothing to save and nowhere to."""
    replace.check(session.messages)
    source = source_of(session.key)
    key = store.sessions.key(source)
    row = replace.current(tx, key)
    if base is not None and base.session_id and (row is None or row.id != base.session_id):
        if not _has_changed(session, base):
            return None
        raise _stale(session.key, "it was ended or deleted, and what was added to it is not stored")
    created_at, updated_at = aware(session.created_at), aware(session.updated_at)
    if row is None:
        row, base = (
            replace.begin(tx, store.context, source, key, created_at),
            _nothing(session.key),
        )
        plan = _Plan(base.held, list(session.messages), session.last_consolidated)
    else:
        plan = _plan(tx, row, session, base)
        if base is not None and plan.theirs is not None:
            updated_at = max(updated_at, from_micros(row.updated_at))
    laid = replace.apply(tx, row, plan.held, plan.parts, now, offset=plan.offset)
    metadata = _merged_metadata(session.metadata, base, from_json(row.metadata))
    replace.set_metadata(tx, row, metadata)
    replace.set_times(tx, row, created_at, updated_at)
    stored = replace.current(tx, key)
    assert stored is not None
    return _Saved(stored, laid, *_laid_out(session, base, plan), _shown(metadata))


class _Plan(NamedTuple):
    """What to make of what is held. `theirs` are its messages, where others may have changed it."""

    held: Snapshot
    parts: list[Part]
    offset: int
    theirs: list[Any] | None = None


def _plan(tx: Transaction, row: SessionRow, session: Session, base: _Base | None) -> _Plan:
    if base is not None and base.version == row.version:
        return _Plan(base.held, _parts(session.messages, base), _wanted(session, base))
    held, bodies = _hold(tx, row)
    if base is None:
        # Nobody knows what it was made from: it says how the conversation is to be.
        parts = replace.aligned(bodies, session.messages)
        return _Plan(held, parts, session.last_consolidated, bodies)
    return _merged(session, base, held, bodies)


def _laid_out(session: Session, base: _Base | None, plan: _Plan) -> tuple[list[Any], list[Any]]:
    """The messages as they are stored now, and a copy of what they say."""
    theirs = plan.theirs
    if theirs is not None:
        messages = [theirs[part] if isinstance(part, int) else part for part in plan.parts]
        return messages, copied(messages)
    before = [] if base is None else base.copies
    messages = list(session.messages)
    copies = [before[part] if isinstance(part, int) else copied(part) for part in plan.parts]
    return messages, copies


def _parts(messages: list[Any], base: _Base) -> list[Part]:
    """The messages, with those that stayed as they were told by their numbers in the base."""
    numbers = {id(one): number for number, one in enumerate(base.given)}
    parts: list[Part] = []
    last = -1
    for message in messages:
        number = numbers.get(id(message), last + 1)
        if last < number < len(base.copies) and base.copies[number] == message:
            last = number
            parts.append(number)
        else:
            parts.append(message)
    # Who makes every message anew may have kept the newest ones.
    return parts if last >= 0 else replace.aligned(base.copies, messages)


def _merged(session: Session, base: _Base, held: Snapshot, bodies: list[Any]) -> _Plan:
    """What the owner of a value wants, on top of what others stored since it was made."""
    mine = _parts(session.messages, base)
    added = _new_at_end(mine)
    head, tail = mine[: len(mine) - added], mine[len(mine) - added :]
    before = base.held.places
    if head == list(range(len(before))):
        offset = _moved(_wanted(session, base), base, held)
        parts = [*range(len(held.places)), *tail]
    elif held.places[: len(before)] == before:
        theirs = range(len(before), len(held.places))
        offset = _wanted(session, base)
        offset += len(theirs) if offset > len(head) else 0
        parts = [*head, *theirs, *tail]
    else:
        raise _stale(session.key, "another program changed what was there before, and so did you")
    return _Plan(held, parts, offset, bodies)


def _wanted(session: Session, base: _Base) -> int:
    """The offset that its owner set. One that was left as it was stays with its message instead.

    So who trims the list and forgets the offset has nothing skipped.
    """
    offset = session.last_consolidated
    return 0 if offset == base.held.offset else offset


def _new_at_end(parts: list[Part]) -> int:
    kept = (number for number, part in enumerate(reversed(parts)) if isinstance(part, int))
    return next(kept, len(parts))


def _moved(offset: int, base: _Base, held: Snapshot) -> int:
    """Where an offset into a value stands in what is held now, with the new messages behind it."""
    count = len(base.held.places)
    if offset > count:
        return len(held.places) + offset - count
    last = base.held.places[offset - 1] if offset > 0 else None
    return next((number for number, place in enumerate(held.places, 1) if place == last), 0)


def _shown(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata without what an import wrote down for itself; that stays in the store."""
    note = stored.get(_NOTE)
    is_note = isinstance(note, dict) and note.get("from") == "nanobot"
    return {name: one for name, one in stored.items() if name != _NOTE or not is_note}


def _merged_metadata(
    mine: Mapping[str, Any], base: _Base | None, theirs: Mapping[str, Any]
) -> dict[str, Any]:
    """What is stored, with what the owner of a value changed since it was made."""
    before = _shown(theirs) if base is None else base.metadata
    absent = object()
    changed = {name: one for name, one in mine.items() if before.get(name, absent) != one}
    kept = {name: one for name, one in theirs.items() if name in mine or name not in before}
    return {**kept, **changed}


def _bring_up_to_date(session: Session, saved: _Saved) -> None:
    """Let a value say what is stored, where others added to it or the offset was not taken back."""
    is_same = len(saved.messages) == len(session.messages) and all(
        one is other for one, other in zip(saved.messages, session.messages, strict=True)
    )
    if not is_same:
        session.messages[:] = saved.messages
    if session.metadata != saved.metadata:
        session.metadata.clear()
        session.metadata.update(saved.metadata)
    session.last_consolidated = saved.held.offset
    updated_at = from_micros(saved.row.updated_at)
    if aware(session.updated_at) != updated_at:
        session.updated_at = local(updated_at)


def _stale(key: str, what: str) -> StaleWrite:
    return StaleWrite(
        f"The conversation {key!r} was not saved: {what}.",
        hint="invalidate(key), get_or_create(key) again, and repeat the change.",
    )
