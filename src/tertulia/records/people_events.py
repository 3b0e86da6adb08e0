"""Decisions about people, and who made them: roles, zones, strangers let in or refused."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from tertulia.core.message import to_json
from tertulia.core.session import Page
from tertulia.core.text.storable import storable
from tertulia.records.newest_pages import page_params, to_page
from tertulia.storage.base import Row, Transaction
from tertulia.storage.rows import from_micros, parse_body, to_micros


class PeopleEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One decision about a person: `role`, `zone`, `approved` or `refused`.

    `by` is who decided, as in `SessionEvent`; None for the program itself. The detail has the role
    or zone, and the one `before`.
    """

    number: int
    person: str
    at: datetime
    kind: str
    by: str | None
    detail: Mapping[str, Any]


def record_event(
    tx: Transaction,
    person: str,
    now: datetime,
    kind: str,
    detail: Mapping[str, Any],
    *,
    by: str | None,
) -> None:
    """Record a decision, in the transaction that carries it out."""
    tx.run(
        "people_event_insert",
        {
            "person": person,
            "now": to_micros(now),
            "kind": kind,
            "actor": storable(by),
            "detail": to_json(detail),
        },
    )


def read_events(
    tx: Transaction, person: str | None, limit: int, cursor: str | None
) -> Page[PeopleEvent]:
    """Return a page of decisions, newest first: all, or those about one person."""
    statement = "people_events_page" if person is None else "people_events_of_person"
    rows = tx.all(statement, {**page_params(limit, cursor), "person": person})
    return to_page(rows, limit, _to_event)


def _to_event(row: Row) -> PeopleEvent:
    number, person, at, kind, actor, detail = row
    return PeopleEvent(
        number=number,
        person=person,
        at=from_micros(at),
        kind=kind,
        by=actor,
        detail=parse_body(detail),
    )
