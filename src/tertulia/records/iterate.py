"""Iterate over sessions and messages with constant memory, however many there are.

No transaction stays open while the caller works on an item. Messages are append-only, so a loop
reads exactly the messages that were in the view when it began.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import partial
from typing import NamedTuple

import msgspec

from tertulia.core import validate
from tertulia.core.history.view import Span
from tertulia.core.message import Message, text_of
from tertulia.core.session import STATES, Session, State
from tertulia.errors import ConfigError
from tertulia.records import session_rows
from tertulia.records.people import resolve_person
from tertulia.records.store_context import StoreContext
from tertulia.records.transcript.read import read_summary
from tertulia.storage import rows
from tertulia.storage.base import Row, Transaction
from tertulia.storage.rows import session_row, to_micros

# How many sessions, and how many messages, are read in one transaction.
_SESSIONS = 100
_MESSAGES = 200


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """A filter for sessions; empty, it selects all. With `ids` these sessions, in that order."""

    ids: tuple[str, ...] = ()
    platform: str | None = None
    key: str | None = None
    person: str | None = None
    state: State = "all"
    active_since: datetime | None = None

    def __post_init__(self) -> None:
        validate.choice("state", self.state, STATES)
        if self.active_since is not None:
            validate.aware_datetime("active_since", self.active_since)
        if self.ids and msgspec.structs.replace(self, ids=()) != Selection():
            raise ConfigError(
                "Session ids cannot be combined with other filters.",
                hint="Give either ids, or platform, key, person, state and active_since.",
            )


class SessionSummary(NamedTuple):
    """The summary that replaces the oldest `messages` messages of a session's view."""

    text: str
    messages: int


def sessions(context: StoreContext, selection: Selection) -> Iterator[Session]:
    """Yield the selected sessions in the order they began.

    Raise `NotFound` before the first one if one of `ids` is unknown.
    """
    if selection.ids:
        session_ids = tuple(dict.fromkeys(selection.ids))
        for session_id in session_ids:
            context.read(partial(session_rows.require, session_id=session_id))
        for session_id in session_ids:
            yield context.read(partial(session_rows.require, session_id=session_id)).session()
        return
    params = context.read(lambda tx: _params(tx, selection))
    while page := _read_page(context, params):
        for row in page:
            yield session_row(row).session()
        params["after"] = page[-1][0]


def messages(context: StoreContext, session_id: str) -> Iterator[Message]:
    """Yield the messages in the view of a session, oldest first.

    Raise `NotFound` if the session is unknown, or is deleted meanwhile.
    """
    for log, first, last in context.read(lambda tx: _spans(tx, session_id)):
        for start in range(first, last + 1, _MESSAGES):
            part = Span(log, start, min(last, start + _MESSAGES - 1))
            for row in context.read(partial(_rows, session_id=session_id, part=part)):
                # The large parts of a message are read only when it is reached.
                yield context.read(partial(rows.message_from_row, row))


def summary(context: StoreContext, session_id: str) -> SessionSummary | None:
    """Return the summary of a session's oldest messages, or None if none were summarised."""

    def work(tx: Transaction) -> SessionSummary | None:
        current = session_rows.current_view(tx, session_id)
        message = read_summary(tx, current)
        if message is None:
            return None
        after_summary = sum(span.size for span in current.spans_after_summary())
        count = current.view.count(current.last_seq) - after_summary
        return SessionSummary(text_of(message.body), count)

    return context.read(work)


def _params(tx: Transaction, selection: Selection) -> dict[str, object]:
    person, since = selection.person, selection.active_since
    return {
        "after": 0,
        "platform": selection.platform,
        "key": selection.key,
        "person": None if person is None else resolve_person(tx, person, selection.platform),
        "since": None if since is None else to_micros(since),
        "state": selection.state,
        "limit": _SESSIONS,
    }


def _read_page(context: StoreContext, params: dict[str, object]) -> list[Row]:
    return context.read(lambda tx: tx.all("sessions_in_order", params))


def _spans(tx: Transaction, session_id: str) -> list[Span]:
    current = session_rows.current_view(tx, session_id)
    return current.view.spans(current.last_seq)


def _rows(tx: Transaction, session_id: str, part: Span) -> list[Row]:
    # If the session was deleted meanwhile, raise: forks may still have some of its messages.
    session_rows.require(tx, session_id)
    return tx.all("messages_of", {"session": part.log, "first": part.first, "last": part.last})
