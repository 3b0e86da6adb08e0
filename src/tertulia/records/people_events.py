"""What was decided about people, with who did it: roles, zones, strangers let in or refused."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from tertulia.core import cursor as cursors
from tertulia.core import validate
from tertulia.core.message import to_json
from tertulia.core.session import Page
from tertulia.core.text.storable import storable
from tertulia.storage.base import Transaction
from tertulia.storage.rows import from_micros, parse_body, to_micros

_MAX_LIMIT: Final = 1000
_NEWEST: Final = 2**62


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
    validate.integer("limit", limit, 1, _MAX_LIMIT)
    before = _NEWEST if cursor is None else cursors.decode(cursor, 1)[0]
    params: dict[str, Any] = {"before": before, "limit": limit + 1}
    if person is None:
        rows = tx.all("people_events_page", params)
    else:
        rows = tx.all("people_events_of_person", {**params, "person": person})
    events = [_to_event(*row) for row in rows]
    has_more = len(events) > limit
    next_cursor = cursors.encode(events[limit - 1].number) if has_more else None
    return Page(tuple(events[:limit]), next_cursor)


def _to_event(
    number: int, person: str, at: int, kind: str, actor: str | None, detail: str
) -> PeopleEvent:
    return PeopleEvent(
        number=number,
        person=person,
        at=from_micros(at),
        kind=kind,
        by=actor,
        detail=parse_body(detail),
    )
