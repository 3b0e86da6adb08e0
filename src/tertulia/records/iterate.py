"""Sessions and messages one after the other, however many there are: memory stays flat.

Neither holds a transaction open while its reader is at work. Messages are append-only, so that what
was seen at the beginning is what is read to the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import partial
from typing import NamedTuple

import msgspec

from tertulia.core.history.view import Span
from tertulia.core.message import Message, text_of
from tertulia.core.session import STATES, Session, State
from tertulia.errors import ConfigError
from tertulia.records import session_rows
from tertulia.records.people import resolve
from tertulia.records.transcript.read import read_summary
from tertulia.storage import rows
from tertulia.storage.base import Database, Row, Transaction
from tertulia.storage.rows import session_row, to_micros

_SESSIONS = 100
_MESSAGES = 200


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which sessions; without any of it, all. With `ids` those, in that order."""

    ids: tuple[str, ...] = ()
    platform: str | None = None
    key: str | None = None
    person: str | None = None
    state: State = "all"
    active_since: datetime | None = None

    def __post_init__(self) -> None:
        if self.state not in STATES:
            raise ConfigError(
                f"state is {self.state!r}.", hint=f"Allowed: {', '.join(STATES)}.", field="state"
            )
        if self.active_since is not None and self.active_since.tzinfo is None:
            raise ConfigError(
                "active_since has no time zone.", hint="Give an aware datetime.", field="since"
            )
        if self.ids and msgspec.structs.replace(self, ids=()) != Selection():
            raise ConfigError(
                "Sessions are named, and others are asked for by what they are.",
                hint="Give either ids, or platform, key, person, state and time.",
            )


class SessionSummary(NamedTuple):
    """A summary that stands for the oldest `messages` of those that are seen."""

    text: str
    messages: int


def sessions(db: Database, selection: Selection) -> Iterator[Session]:
    """Those sessions, in the order they began; `NotFound` at once if one of `ids` is unknown."""
    if selection.ids:
        unique = tuple(dict.fromkeys(selection.ids))
        for name in unique:
            db.read(partial(session_rows.require, session_id=name))
        for name in unique:
            yield db.read(partial(session_rows.require, session_id=name)).session()
        return
    asked = db.read(lambda tx: _asked(tx, selection))
    while found := _page(db, asked):
        for row in found:
            yield session_row(row).session()
        asked["after"] = found[-1][0]


def messages(db: Database, session_id: str) -> Iterator[Message]:
    """The messages of a session that are seen, oldest first."""
    for log, first, last in db.read(lambda tx: _spans(tx, session_id)):
        for start in range(first, last + 1, _MESSAGES):
            part = Span(log, start, min(last, start + _MESSAGES - 1))
            for row in db.read(partial(_rows, session_id=session_id, part=part)):
                # What is large in a message is fetched when its turn comes.
                yield db.read(partial(rows.message, row))


def summary(db: Database, session_id: str) -> SessionSummary | None:
    """What is told of a session's oldest messages instead of themselves, if they were summed up."""

    def work(tx: Transaction) -> SessionSummary | None:
        seen = session_rows.current_view(tx, session_id)
        standing = read_summary(tx, seen)
        if standing is None:
            return None
        fresh = sum(span.size for span in seen.fresh())
        return SessionSummary(text_of(standing.body), seen.view.count(seen.last_seq) - fresh)

    return db.read(work)


def _asked(tx: Transaction, selection: Selection) -> dict[str, object]:
    person, since = selection.person, selection.active_since
    return {
        "after": 0,
        "platform": selection.platform,
        "key": selection.key,
        "person": None if person is None else resolve(tx, person, selection.platform),
        "since": None if since is None else to_micros(since),
        "state": selection.state,
        "limit": _SESSIONS,
    }


def _page(db: Database, asked: dict[str, object]) -> list[Row]:
    return db.read(lambda tx: tx.all("sessions_in_order", asked))


def _spans(tx: Transaction, session_id: str) -> list[Span]:
    seen = session_rows.current_view(tx, session_id)
    return seen.view.spans(seen.last_seq)


def _rows(tx: Transaction, session_id: str, part: Span) -> list[Row]:
    session_rows.require(tx, session_id)  # deleted meanwhile: what is left of it is not the session
    return tx.all("messages_of", {"session": part.log, "first": part.first, "last": part.last})
