"""Rows of the database as values."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from tertulia.core.message import EPOCH, Message, from_json, restore
from tertulia.core.session import Notice, Session
from tertulia.core.source import Source
from tertulia.core.usage import STATUSES, Usage, from_nano
from tertulia.core.view import View
from tertulia.storage.base import Row, Transaction

_MICROSECOND = timedelta(microseconds=1)


def to_micros(moment: datetime) -> int:
    """Whole microseconds since 1970; exact, which a float of seconds is not."""
    return (moment - EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


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

    def session(self, notice: Notice | None = None) -> Session:
        cost = from_nano(self.cost)
        status = STATUSES[self.certainty or 0]
        return Session(
            id=self.id,
            key=self.key,
            agent=self.agent,
            origin=Source.from_dict(from_json(self.origin)),
            display_name=self.display_name,
            title=self.title,
            created_at=from_micros(self.created_at),
            updated_at=from_micros(self.updated_at),
            ended_at=None if self.ended_at is None else from_micros(self.ended_at),
            end_reason=self.end_reason,
            parent_id=self.parent_id,
            parent_kind=self.parent_kind,
            usage=Usage(
                self.input,
                self.output,
                self.cache_read,
                self.cache_write,
                self.reasoning,
                model=self.model,
                provider=self.provider,
                cost_usd=cost,
                cost_status=status,
                cost_source=self.cost_source,
                last_prompt=self.last_prompt,
            ),
            last_prompt_tokens=self.last_prompt,
            cost_usd=cost,
            cost_status=status,
            cost_source=self.cost_source,
            model=self.model,
            provider=self.provider,
            metadata=from_json(self.metadata),
            version=self.version,
            notice=notice,
        )


def session_row(row: Row) -> SessionRow:
    return SessionRow._make(row[: len(SessionRow._fields)])


class Glance(NamedTuple):
    """A session's current view: the columns of `transcript_view`, in their order."""

    ref: int
    last_seq: int
    turns: int
    number: int
    view: View
    made_by: str
    made_from: int | None
    start_seq: int

    @classmethod
    def of(cls, row: Row) -> Glance:
        ref, last_seq, turns, number, ranges, *rest = row
        return cls(ref, last_seq, turns, number, view_from(ranges), *rest)


def view_from(ranges: str) -> View:
    return View(tuple(tuple(item) for item in from_json(ranges)))


def message(row: Row, tx: Transaction) -> Message:
    body, away = row[7:]
    return Message(*row[:7], from_json(body) if away is None else whole_body(body, away, tx))


def whole_body(body: str, away: str | None, tx: Transaction) -> dict[str, object]:
    if away is None:
        return from_json(body)  # type: ignore[no-any-return]
    return restore(body, away, lambda name: _blob(tx, name))


def _blob(tx: Transaction, name: str) -> bytes:
    row = tx.one("blob_data", {"hash": name})
    assert row is not None, "a blob lives as long as a message that names it"
    return row[0]  # type: ignore[no-any-return]
