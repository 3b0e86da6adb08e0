"""What several records do within a transaction."""

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
from tertulia.core.text.storable import storable
from tertulia.errors import Error, NotFound
from tertulia.records.store_context import StoreContext
from tertulia.storage.base import Transaction
from tertulia.storage.rows import CurrentView, SessionRow, body, session_row, to_micros

log = logging.getLogger("tertulia")


def require(tx: Transaction, session_id: str) -> SessionRow:
    row = tx.one("session_by_id", {"id": session_id})
    if row is None:
        raise missing(session_id)
    return session_row(row)


def key_of(context: StoreContext, source: Source) -> str:
    """The key of a source under the settings of a store, without links."""
    settings = context.settings
    return keys.session_key(
        source,
        agent=settings.agent,
        per_user=settings.group_sessions_per_user,
        threads_shared=settings.thread_sessions_shared,
    )


def lane_of(key: str) -> str:
    """The lane of a conversation: what is done in it is done one after the other."""
    return f"conversation {key}"


def database_time(tx: Transaction) -> int:
    """The database's time, in microseconds: leases run on it."""
    row = tx.one("db_now")
    assert row is not None
    return int(row[0])


def is_under_way(tx: Transaction, row: SessionRow) -> bool:
    """Whether a turn holds the session; a policy does not end it meanwhile."""
    return bool(row.lease_until) and row.lease_until > database_time(tx)


def current_view(tx: Transaction, session_id: str) -> CurrentView:
    """The current view of a session."""
    row = tx.one("transcript_view", {"id": session_id})
    if row is None:
        raise missing(session_id)
    return CurrentView.of(row)


def current_view_of(tx: Transaction, ref: int) -> CurrentView:
    """The current view of a session of this transaction."""
    row = tx.one("transcript_view_of", {"ref": ref})
    assert row is not None
    return CurrentView.of(row)


def missing(session_id: str) -> NotFound:
    return NotFound(
        f"There is no session {session_id!r}.",
        hint="List them with: tertulia sessions list",
        session_id=session_id,
    )


def begin(
    tx: Transaction,
    context: StoreContext,
    source: Source,
    key: str,
    now: datetime,
    *,
    parent: SessionRow | None = None,
    kind: str | None = None,
    last_seq: int = 0,
    turns: int = 0,
) -> SessionRow:
    """Insert a session. Its view and the event of its beginning are the caller's."""
    person = owner_person(source, context)
    origin = to_json(source.to_dict())
    row = tx.one(
        "session_insert",
        {
            "id": _new_id(tx, now),
            "key": key,
            "agent": context.settings.agent,
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
    assert row is not None
    if person is not None:
        remember_person(tx, source, person, now)
    found = session_row(row)
    tx.run("unindexed_put", {"session": found.ref})
    return found


def end(tx: Transaction, row: SessionRow, reason: str, now: datetime) -> None:
    tx.run("session_end", {"ref": row.ref, "reason": reason, "now": to_micros(now)})
    event(tx, row.ref, now, "ended", {"reason": reason})


def event(tx: Transaction, ref: int, now: datetime, kind: str, detail: Mapping[str, Any]) -> None:
    """Remember why, for `explain`."""
    tx.run(
        "event_insert",
        {"session": ref, "now": to_micros(now), "kind": kind, "detail": to_json(detail)},
    )


def first_view(
    tx: Transaction, ref: int, view: View, made_by: str, now: datetime, seq: int
) -> None:
    """The revision a session starts with."""
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
        },
    )


def origin_of(row: SessionRow) -> Source:
    return Source.from_dict(body(row.origin))


def owner_person(source: Source, context: StoreContext) -> str | None:
    """Whose session it is: nobody's alone where the key would be the same for another person."""
    if source.chat_type == "dm":
        return keys.person_of(source)
    is_apart = context.settings.group_sessions_per_user and not (
        context.settings.thread_sessions_shared and source.thread_id
    )
    return keys.person_of(source) if is_apart else None


def remember_person(tx: Transaction, source: Source, person: str, now: datetime) -> None:
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
    """Seconds and 32 random bits; the rare twin within one second gets other bits."""
    stamp = now.strftime("%Y%m%d_%H%M%S")
    while True:
        found = f"{stamp}_{os.urandom(4).hex()}"
        if tx.one("session_by_id", {"id": found}) is None:
            return found


def log_errors(call: Callable[[], object]) -> None:
    """Do what is not worth failing for; that it failed is logged."""
    try:
        call()
    except Error as problem:
        log.warning("%s", problem)
