"""What happened to a session, with who did it: the events that `explain` puts into words."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from tertulia.core import cursor as cursors
from tertulia.core import validate
from tertulia.core.session import Page
from tertulia.records import session_rows
from tertulia.storage.base import Transaction
from tertulia.storage.rows import from_micros, parse_body

_MAX_LIMIT: Final = 1000
_NEWEST: Final = 2**62


class SessionEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened to a session.

    `by` is who did it: a person's identity, `token:NAME` over HTTP, `local` at the command line;
    None for the program itself, such as a policy.
    """

    number: int
    at: datetime
    kind: str
    by: str | None
    detail: Mapping[str, Any]


def read_events(
    tx: Transaction, session_id: str, limit: int, cursor: str | None
) -> Page[SessionEvent]:
    """Return a page of the events of a session, newest first; raise `NotFound`."""
    validate.integer("limit", limit, 1, _MAX_LIMIT)
    row = session_rows.require(tx, session_id)
    before = _NEWEST if cursor is None else cursors.decode(cursor, 1)[0]
    params = {"session": row.ref, "before": before, "limit": limit + 1}
    events = [_to_event(*columns) for columns in tx.all("events_page", params)]
    has_more = len(events) > limit
    return Page(
        tuple(events[:limit]), cursors.encode(events[limit - 1].number) if has_more else None
    )


def _to_event(number: int, at: int, kind: str, stored: str) -> SessionEvent:
    detail = parse_body(stored)
    by = detail.pop("by", None)
    return SessionEvent(number=number, at=from_micros(at), kind=kind, by=by, detail=detail)
