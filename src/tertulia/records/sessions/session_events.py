"""The events of a session, and who caused them; `explain` describes them in words."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from tertulia.core.session import Page
from tertulia.records import session_rows
from tertulia.records.newest_pages import page_params, to_page
from tertulia.storage.base import Row, Transaction
from tertulia.storage.rows import from_micros, parse_body


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
    """Return a page of the events of a session, newest first.

    Raise `NotFound` if there is no such session.
    """
    params = page_params(limit, cursor)
    session = session_rows.require(tx, session_id)
    rows = tx.all("events_page", {**params, "session": session.ref})
    return to_page(rows, limit, _to_event)


def _to_event(row: Row) -> SessionEvent:
    number, at, kind, stored = row
    detail = parse_body(stored)
    by = detail.pop("by", None)
    return SessionEvent(number=number, at=from_micros(at), kind=kind, by=by, detail=detail)
