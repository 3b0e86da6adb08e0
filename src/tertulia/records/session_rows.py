"""Reading and writing session rows within a transaction, shared by all records."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from tertulia.core import keys
from tertulia.core.history.view import View
from tertulia.core.message import to_json
from tertulia.core.source import Source
from tertulia.core.text.excerpt import short_repr
from tertulia.core.text.storable import storable
from tertulia.errors import Error, NotFound, StaleWrite
from tertulia.process_identity import has_ended
from tertulia.records.approval_questions import close_question
from tertulia.records.approval_rows import to_approval
from tertulia.records.store_context import StoreContext
from tertulia.storage.base import Row, Transaction
from tertulia.storage.rows import CurrentView, SessionRow, parse_body, session_row, to_micros

log = logging.getLogger("tertulia")


def get(tx: Transaction, session_id: str) -> SessionRow | None:
    """Return the row of a session, or None."""
    row = tx.one("session_by_id", {"id": session_id})
    return None if row is None else session_row(row)


def require(tx: Transaction, session_id: str) -> SessionRow:
    """Return the row of a session; raise `NotFound` if there is none."""
    row = get(tx, session_id)
    if row is None:
        raise session_not_found(session_id)
    return row


def get_current(tx: Transaction, key: str) -> SessionRow | None:
    """Return the row of the current session of a key, or None; no policy is applied."""
    row = tx.one("session_current", {"key": key})
    return None if row is None else session_row(row)


def set_metadata(
    tx: Transaction, row: SessionRow, metadata: Mapping[str, Any], *, version: int | None = None
) -> None:
    """Replace the metadata of a session.

    With a version, raise `StaleWrite` unless the session is still at it.
    """
    params = {"ref": row.ref, "metadata": to_json(metadata), "version": version}
    if tx.changed("session_set_metadata", params) == 0:
        raise StaleWrite(
            f"The session is at version {row.version}, not {version}.",
            hint="Read it again, then write.",
            version=row.version,
        )


def is_title_free(tx: Transaction, owner: str, title: str, *, ref: int) -> bool:
    """Return whether no session of an owner has that title, except the session `ref`."""
    params = {"owner": owner, "title": title, "ref": ref}
    return tx.one("session_title_exists", params) is None


def key_of(context: StoreContext, source: Source) -> str:
    """Return the key of a source under the settings of a store, without links."""
    settings = context.settings
    return keys.session_key(
        source,
        agent=settings.agent,
        per_user=settings.group_sessions_per_user,
        threads_shared=settings.thread_sessions_shared,
    )


def lane_of(key: str) -> str:
    """Return the lane of a conversation: writes in one lane run one after the other.

    Decision 0008 explains lanes.
    """
    return f"conversation {key}"


def database_time(tx: Transaction) -> int:
    """Return the database's time in microseconds, which leases are measured by."""
    row = tx.one("db_now")
    assert row is not None
    return int(row[0])


def has_running_turn(tx: Transaction, row: SessionRow) -> bool:
    """Return whether a turn has the lease of a session; a policy does not end it then."""
    is_leased = bool(row.lease_until) and row.is_leased_at(database_time(tx))
    return is_leased and not has_holder_ended(tx, row.ref)


def has_holder_ended(tx: Transaction, ref: int) -> bool:
    """Return whether the process that took the lease of a session last has certainly ended.

    Then the lease need not run out: entering raises the epoch, and what that process may still
    have sent to the database changes nothing.
    """
    (holder,) = tx.one("session_lease_holder", {"ref": ref}) or (None,)
    return holder is not None and has_ended(holder)


def is_in_use(tx: Transaction, row: SessionRow) -> bool:
    """Return whether a turn runs in a session or waits for an approval: then no policy ends it."""
    return has_running_turn(tx, row) or has_waiting_turn(tx, row)


def has_waiting_turn(tx: Transaction, row: SessionRow) -> bool:
    """Return whether the open turn of a session waits for an approval."""
    if row.open_turn is None:
        return False
    columns = tx.one("turn_by_number", {"ref": row.ref, "number": row.open_turn})
    return columns is not None and columns[0] == "waiting"


def close_approvals(
    tx: Transaction, ref: int, now: datetime, reason: str, *, state: str = "declined"
) -> list[Row]:
    """Decline the calls of a session that wait for an approval; return their rows."""
    params = {"session": ref, "state": state, "reason": reason, "now": to_micros(now)}
    rows = tx.all("approvals_close", params)
    for row in rows:
        close_question(tx, to_approval(row), now)
    return rows


def current_view(tx: Transaction, session_id: str) -> CurrentView:
    """Return the current view of a session; raise `NotFound` if there is no such session."""
    row = tx.one("transcript_view", {"id": session_id})
    if row is None:
        raise session_not_found(session_id)
    return CurrentView.from_row(row)


def current_view_of(tx: Transaction, ref: int) -> CurrentView:
    """Return the current view of a session that is known to exist in this transaction."""
    row = tx.one("transcript_view_of", {"ref": ref})
    assert row is not None
    return CurrentView.from_row(row)


def session_not_found(session_id: str) -> NotFound:
    """Return the error for an unknown session id."""
    return NotFound(
        f"There is no session {short_repr(session_id)}.",
        hint="List them with: tertulia sessions list",
        session_id=session_id,
    )


def insert_session(
    tx: Transaction,
    context: StoreContext,
    source: Source,
    key: str,
    now: datetime,
    *,
    person: str | None,
    parent: SessionRow | None = None,
    kind: str | None = None,
    last_seq: int = 0,
    turns: int = 0,
) -> SessionRow:
    """Insert a session and return its row; the caller adds its first revision and event.

    `person` is whose it is: the person who has its key (`owner_person`), not who wrote through a
    link; None if several people share it.
    """
    origin = to_json(source.to_dict())
    columns = tx.one(
        "session_insert",
        {
            "id": _new_id(tx, now),
            "key": key,
            "agent": source.agent or context.settings.agent,
            "platform": storable(source.platform),
            "chat_type": storable(source.chat_type),
            "person": person,
            "owner": person or key,
            "origin": origin,
            "display_name": storable(source.chat_name or source.user_name),
            "now": to_micros(now),
            "parent_id": parent and parent.id,
            "parent_kind": kind,
            "last_seq": last_seq,
            "turns": turns,
        },
    )
    assert columns is not None
    author = keys.person_of(source)
    if person is not None and author is not None:
        remember_person(tx, source, author, now)
    row = session_row(columns)
    tx.run("unindexed_put", {"session": row.ref})
    return row


def touch(tx: Transaction, row: SessionRow, at: datetime) -> None:
    """Store when the user of a session was last active."""
    tx.run("session_touch", {"ref": row.ref, "now": to_micros(at)})


def mark_ended(
    tx: Transaction, row: SessionRow, reason: str, now: datetime, *, by: str | None = None
) -> None:
    """Mark a session as ended, and record the event and who ended it."""
    tx.run("session_end", {"ref": row.ref, "reason": reason, "now": to_micros(now)})
    close_approvals(tx, row.ref, now, "the conversation ended")
    record_event(tx, row.ref, now, "ended", {"reason": reason}, by=by)


def record_event(
    tx: Transaction,
    ref: int,
    now: datetime,
    kind: str,
    detail: Mapping[str, Any],
    *,
    by: str | None = None,
) -> None:
    """Record an event of a session, for `explain`; `by` is who caused it, None for the program."""
    stored = detail if by is None else {**detail, "by": storable(by)}
    tx.run(
        "event_insert",
        {"session": ref, "now": to_micros(now), "kind": kind, "detail": to_json(stored)},
    )


def insert_first_revision(
    tx: Transaction, ref: int, view: View, made_by: str, now: datetime, seq: int
) -> None:
    """Insert the first revision of a session."""
    tx.run(
        "revision_insert",
        {
            "session": ref,
            "number": 1,
            "ranges": to_json(view.ranges),
            "made_by": made_by,
            "made_from": None,
            "start_seq": seq,
            "now": to_micros(now),
            "summary_seq": None,
            "after_log": None,
            "after_seq": None,
            "actor": None,
        },
    )


def origin_of(row: SessionRow) -> Source:
    """Return the source that a session began with."""
    return Source.from_dict(parse_body(row.origin))


def owner_person(source: Source, context: StoreContext) -> str | None:
    """Return the person who owns the session of a source.

    None if another person would have the same key, so that the session is shared.
    """
    return None if is_shared(source, context) else keys.person_of(source)


def is_shared(source: Source, context: StoreContext) -> bool:
    """Return whether, by the settings, several people write in the session of a source."""
    settings = context.settings
    return source.chat_type != "dm" and (
        not settings.group_sessions_per_user
        or (settings.thread_sessions_shared and source.thread_id is not None)
    )


def remember_person(tx: Transaction, source: Source, person: str, now: datetime) -> None:
    """Store a person unless they are stored already."""
    tx.run(
        "person_insert",
        {
            "person": person,
            "platform": storable(source.platform),
            "account": storable(source.account),
            "user_id": storable(source.user_id or source.participant or source.chat_id),
            "user_id_alt": storable(source.user_id_alt),
            "name": storable(source.user_name),
            "now": to_micros(now),
        },
    )


def _new_id(tx: Transaction, now: datetime) -> str:
    """Return a new id: the second and 32 random bits, drawn again if the id exists."""
    stamp = now.strftime("%Y%m%d_%H%M%S")
    while True:
        session_id = f"{stamp}_{os.urandom(4).hex()}"
        if get(tx, session_id) is None:
            return session_id


def log_errors(call: Callable[[], object]) -> None:
    """Call a function whose failure must not fail the caller; log its error instead.

    A session that was deleted, or never stored because the disk was full, is no error.
    """
    try:
        call()
    except NotFound:
        return
    except Error as problem:
        log.warning("%s", problem)
