"""Rows of the database converted to values."""

from __future__ import annotations

import zlib
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from tertulia.core.history.view import Span, View
from tertulia.core.message import EPOCH, Message, from_json, restore
from tertulia.core.session import Notice, Session
from tertulia.core.source import Source
from tertulia.core.usage import STATUSES, Usage, from_nano
from tertulia.errors import ConfigError, StoreCorrupt
from tertulia.storage.base import Row, Transaction

_MICROSECOND = timedelta(microseconds=1)

# The exceptions that Python raises for damaged rows; a sound store causes none of them.
PARSE_ERRORS = (ValueError, TypeError, LookupError, AttributeError, OverflowError, zlib.error)


def to_micros(moment: datetime) -> int:
    """Return whole microseconds since 1970; exact, unlike the float of `timestamp()`."""
    return (moment - EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """Return the time; raise StoreCorrupt if it is out of range."""
    try:
        # By position: timedelta takes three times as long for an argument with a name.
        return EPOCH + timedelta(0, 0, micros)
    except OverflowError as problem:
        raise corrupt_error("a time", problem) from problem


@lru_cache(maxsize=4096)
def parse_source(text: str) -> Source:
    """Return a stored source; cached, because the same chats come again and again."""
    return Source.from_dict(from_json(text))


class SessionRow(NamedTuple):
    """The columns of `part_session`, in their order."""

    ref: int
    id: str
    key: str
    agent: str
    platform: str
    chat_type: str
    person: str | None
    owner: str
    origin: str
    display_name: str | None
    title: str | None
    created_at: int
    updated_at: int
    ended_at: int | None
    end_reason: str | None
    parent_id: str | None
    parent_kind: str | None
    input: int
    output: int
    cache_read: int
    cache_write: int
    reasoning: int
    last_prompt: int
    cost: int | None
    certainty: int | None
    cost_source: str | None
    model: str | None
    provider: str | None
    metadata: str
    version: int
    last_seq: int
    turns: int
    revision: int
    epoch: int
    lease_until: int
    lease_length: int
    open_turn: int | None

    def is_leased_at(self, database_time: int) -> bool:
        """Return whether the lease of the session lasts at a time of the database's clock.

        A lease that ends later than it could is over: the clock was set back. The tolerance of one
        more length gives a holder that lives the time to renew it.
        """
        return database_time < self.lease_until <= database_time + 2 * self.lease_length

    def session(self, notice: Notice | None = None) -> Session:
        """Return the row as a Session; raise StoreCorrupt if it cannot be parsed."""
        try:
            return self._session(notice)
        except (*PARSE_ERRORS, ConfigError) as problem:
            raise corrupt_error(f"session {self.id}", problem) from problem

    def _session(self, notice: Notice | None) -> Session:
        # Unpacked and without calls for its times: lists of sessions spend their time here.
        (
            _, id_, key, agent, _, _, _, _, origin, display_name, title, created_at, updated_at,
            ended_at, end_reason, parent_id, parent_kind, input_, output, cache_read, cache_write,
            reasoning, last_prompt, nano, certainty, cost_source, model, provider, metadata,
            version, _, _, _, _, _, _, _,
        ) = self  # fmt: skip
        cost = None if nano is None else from_nano(nano)
        status = STATUSES[certainty or 0]
        return Session(
            id=id_,
            key=key,
            agent=agent,
            origin=parse_source(origin),
            display_name=display_name,
            title=title,
            created_at=EPOCH + timedelta(0, 0, created_at),
            updated_at=EPOCH + timedelta(0, 0, updated_at),
            ended_at=None if ended_at is None else EPOCH + timedelta(0, 0, ended_at),
            end_reason=end_reason,
            parent_id=parent_id,
            parent_kind=parent_kind,
            usage=Usage(
                input_,
                output,
                cache_read,
                cache_write,
                reasoning,
                model=model,
                provider=provider,
                cost_usd=cost,
                cost_status=status,
                cost_source=cost_source,
                last_prompt=last_prompt,
            ),
            last_prompt_tokens=last_prompt,
            cost_usd=cost,
            cost_status=status,
            cost_source=cost_source,
            model=model,
            provider=provider,
            metadata={} if metadata == "{}" else from_json(metadata),
            version=version,
            notice=notice,
        )


_SESSION_WIDTH = len(SessionRow._fields)


def session_row(row: Row) -> SessionRow:
    """Return the columns of `part_session`; the row may have more behind them."""
    # `_make` would check the number of columns once more.
    return tuple.__new__(SessionRow, row if len(row) == _SESSION_WIDTH else row[:_SESSION_WIDTH])


class CurrentView(NamedTuple):
    """A session's current view: the columns of `transcript_view`, in their order."""

    ref: int
    last_seq: int
    turns: int
    number: int
    view: View
    made_by: str
    made_from: int | None
    start_seq: int
    summary_seq: int | None
    after_log: int | None
    after_seq: int | None
    zone: str | None  # of the person

    def spans_after_summary(self) -> list[Span]:
        """Return the spans of the view that no summary covers."""
        if self.after_log is None or self.after_seq is None:
            return self.view.spans(self.last_seq)
        return self.view.after(self.after_log, self.after_seq, self.last_seq)

    @classmethod
    def from_row(cls, row: Row) -> CurrentView:
        ref, last_seq, turns, number, ranges, *rest = row
        return cls(ref, last_seq, turns, number, parse_view(ranges), *rest)


def parse_view(ranges: str) -> View:
    """Parse the `ranges` of a revision; raise StoreCorrupt if it cannot be parsed."""
    try:
        return View(tuple((log, first, last) for log, first, last in from_json(ranges)))
    except PARSE_ERRORS as problem:
        raise corrupt_error("a revision", problem) from problem


def message_from_row(row: Row, tx: Transaction) -> Message:
    """Return a row of `part_message` as a Message; `tx` loads the large parts of its body.

    Raise `StoreCorrupt` if it is damaged.
    """
    log, seq, turn, role, kind, at, author, text, away = row
    return Message(log, seq, turn, role, kind, at, author, load_body(text, away, tx))


def parse_body(text: str) -> dict[str, Any]:
    """Parse the body of a message without its large parts; raise StoreCorrupt if damaged."""
    try:
        return from_json(text)  # type: ignore[no-any-return]
    except PARSE_ERRORS as problem:
        raise corrupt_error("a message", problem) from problem


def load_body(text: str, away: str | None, tx: Transaction) -> dict[str, Any]:
    """Parse the body of a message and load its large parts; raise StoreCorrupt if damaged."""
    if away is None:
        return parse_body(text)
    try:
        return restore(text, away, lambda name: _read_blob(tx, name))
    except PARSE_ERRORS as problem:
        raise corrupt_error("a large message", problem) from problem


def corrupt_error(subject: str, problem: Exception) -> StoreCorrupt:
    """Return the error for a row that can be read but not parsed."""
    return StoreCorrupt(
        f"The store is damaged: {subject} cannot be read ({problem}).",
        hint="Keep the file, run: tertulia store check, and restore the newest backup.",
    )


def _read_blob(tx: Transaction, name: str) -> bytes:
    """Return the data of a blob; raise `LookupError` if it is missing."""
    row = tx.one("blob_data", {"hash": name})
    if row is None:
        raise LookupError(f"part {name} is missing")
    return row[0]  # type: ignore[no-any-return]
