"""The inbox: what was accepted and is to be answered, in order for each conversation.

waiting → taken → done
                → waiting   it failed and will be tried again; or its taker was lost
                → dead      it cannot be answered
        → done              a turn that was under way has taken it in
gathered                    it is answered together with the message before it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal

import msgspec

from tertulia.core import validate
from tertulia.core.message import from_json, to_json
from tertulia.core.session import Page
from tertulia.core.source import Source
from tertulia.core.text.storable import storable
from tertulia.errors import StaleWrite
from tertulia.records import session_rows
from tertulia.records.people import linked_key
from tertulia.records.queues import base
from tertulia.records.store_context import StoreContext
from tertulia.records.turns.user_message import UserMessage
from tertulia.storage.base import Row, Transaction
from tertulia.storage.rows import from_micros, to_micros

CHANNEL: Final = "inbox"
# Whoever takes from the box does so one after the other; each only takes heads of lanes.
CLAIMS: Final = "claims from the inbox"

ArrivalState = Literal["waiting", "taken", "done", "dead", "gathered"]
ARRIVAL_STATES: tuple[ArrivalState, ...] = ("waiting", "taken", "done", "dead", "gathered")
# A person who never stops writing is answered after so many times the pause.
_LONGEST_GATHERING: Final = 5


class InboxItem(msgspec.Struct, frozen=True, kw_only=True):
    """A message that was accepted. `is_new` is False where it had come before."""

    id: int
    key: str
    source: Source
    text: str | None
    message_id: str | None
    media: tuple[Any, ...]
    state: ArrivalState
    attempts: int
    not_before: datetime
    received_at: datetime
    problem: str | None
    gathered_into: int | None = None
    is_new: bool = False


class Inbox:
    """What a store has accepted."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context
        self._db = context.db

    def put(
        self,
        source: Source,
        text: str | None = None,
        *,
        message_id: str | int | None = None,
        media: Sequence[Any] = (),
        gather_seconds: float = 0,
    ) -> InboxItem:
        """Accept a message. One that came before changes nothing and is given back as it stands.

        With `gather_seconds` it waits that long for more: what the same person writes meanwhile is
        added to it, and answered together.
        """
        validate.source(source)
        validate.many("media", media)
        validate.number("gather_seconds", gather_seconds)
        message = None if message_id is None else str(message_id)
        key = session_rows.key_of(self._context, source)
        arrival = UserMessage(source, text, message, ()).dedupe_key
        now = self._context.clock.now()
        params = {
            "arrival": arrival,
            "source": to_json(source.to_dict()),
            "body": to_json({"text": text, "message_id": message, "media": list(media)}),
            "now": to_micros(now),
            "not_before": to_micros(base.later(now, gather_seconds)),
        }

        def work(tx: Transaction) -> InboxItem:
            known = tx.one("inbox_by_arrival", {"arrival": arrival}) if arrival else None
            if known is not None:
                return _arrival(known)
            shared = linked_key(tx, source, key)
            if shared != key:
                tx.hold(session_rows.lane_of(shared))
            asked = {**params, "key": shared}
            row = _gather(tx, asked, gather_seconds) if gather_seconds else None
            row = row or tx.one("inbox_put", asked)
            assert row is not None
            return _arrival(row, is_new=True)

        accepted = self._db.write(work, lane=session_rows.lane_of(key))
        if accepted.is_new:
            self._db.notify(CHANNEL)
        return accepted

    def claim(self, limit: int = 10, *, lease_seconds: float = 60) -> list[InboxItem]:
        """Take the oldest waiting message of each conversation that has none under way.

        Whoever takes longer than the lease renews it, or another taker gets the message.
        """
        base.check_limit(limit)
        params = {
            "now": to_micros(self._context.clock.now()),
            "lease": base.lease_micros(lease_seconds),
            "limit": limit,
        }

        def work(tx: Transaction) -> list[InboxItem]:
            tx.run("inbox_expire")
            return sorted(map(_arrival, tx.all("inbox_claim", params)), key=lambda a: a.id)

        return self._db.write(work, lane=CLAIMS)

    def wait(self, seconds: float) -> bool:
        """Wait until there is something to claim; False if nothing came in that time."""
        return base.wait(self._context, CHANNEL, [("inbox_is_due", {})], seconds)

    def renew(self, arrival: InboxItem, *, lease_seconds: float = 60) -> None:
        """Keep a claim for longer."""
        lease = base.lease_micros(lease_seconds)
        params = {"id": arrival.id, "attempts": arrival.attempts, "lease": lease}
        if self._db.write(lambda tx: tx.changed("inbox_renew", params), lane=_lane(arrival)) == 0:
            raise _taken_over()

    def done(self, arrival: InboxItem) -> None:
        """It was answered."""
        self._settle(arrival, "done", None, None)

    def dismiss(self, arrival: InboxItem) -> None:
        """Settle a message that still waits and needs no answer; `StaleWrite` if it was taken."""
        self._db.write(lambda tx: take_in(tx, arrival), lane=_lane(arrival))
        self._db.notify(CHANNEL)

    def failed(
        self,
        arrival: InboxItem,
        problem: str,
        *,
        retry_after: float | None = None,
        for_good: bool = False,
    ) -> None:
        """It was not answered: try again after some seconds, or give up."""
        self._settle(arrival, "dead" if for_good else "waiting", problem, retry_after)

    def find(
        self,
        *,
        state: ArrivalState | None = None,
        key: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[InboxItem]:
        """Accepted messages in the order they came."""
        base.check_limit(limit)
        if state is not None:
            base.check_word("state", state, ARRIVAL_STATES)
        params = {"state": state, "key": key, "after": base.after(cursor), "limit": limit + 1}
        statement = "inbox_find"
        if key is not None:
            statement = "inbox_find_by_key"
        elif state is not None:
            statement = "inbox_find_by_state"
        found = self._db.read(lambda tx: [_arrival(row) for row in tx.all(statement, params)])
        return base.page(found, limit)

    def _settle(
        self, arrival: InboxItem, state: ArrivalState, problem: str | None, after: float | None
    ) -> None:
        base.check_claimed("arrival", arrival, InboxItem)
        later = base.later(self._context.clock.now(), after)
        params = {
            "id": arrival.id,
            "state": state,
            "attempts": arrival.attempts,
            "problem": storable(problem),
            "not_before": to_micros(later),
        }
        self._db.write(lambda tx: _settle(tx, params), lane=_lane(arrival))
        self._db.notify(CHANNEL)


def _gather(tx: Transaction, asked: Mapping[str, Any], seconds: float) -> Row | None:
    """Add a message to the one before it, if that still waits for more from the same person."""
    row = tx.one("inbox_newest", {"key": asked["key"]})
    if row is None or row[3] != asked["source"]:
        return None
    before, new = _arrival(row), from_json(asked["body"])
    now = from_micros(asked["now"])
    if before.state != "waiting" or before.attempts or before.not_before <= now:
        return None
    latest = base.later(before.received_at, seconds * _LONGEST_GATHERING)
    grown = {
        "id": before.id,
        "body": to_json(
            {
                "text": "\n".join(text for text in (before.text, new["text"]) if text) or None,
                "message_id": before.message_id,
                "media": [*before.media, *new["media"]],
            }
        ),
        "not_before": min(asked["not_before"], to_micros(latest)),
    }
    tx.run("inbox_grow", grown)
    # What it said stands in the one before; here it is only known to have come.
    empty = to_json({"text": None, "message_id": new["message_id"], "media": []})
    return tx.one("inbox_put_gathered", {**asked, "body": empty, "into": before.id})


def settle_answered(tx: Transaction, arrival: InboxItem) -> None:
    """A message that was claimed is answered by the turn whose answer is being stored."""
    tx.hold(_lane(arrival))
    params = {
        "id": arrival.id,
        "state": "done",
        "attempts": arrival.attempts,
        "problem": None,
        "not_before": to_micros(arrival.not_before),
    }
    _settle(tx, params)


def _settle(tx: Transaction, params: Mapping[str, Any]) -> None:
    settled = tx.one("inbox_settle", params)
    if settled is None:
        raise _taken_over()
    if params["state"] != "waiting":
        promote(tx, settled[0])


def take_in(tx: Transaction, arrival: InboxItem) -> None:
    """A message that waits is answered by a turn under way."""
    tx.hold(_lane(arrival))
    # What it said stands in the transcript, and is forgotten with that.
    empty = to_json({"text": None, "message_id": arrival.message_id, "media": []})
    params = {"id": arrival.id, "attempts": arrival.attempts, "body": empty}
    settled = tx.one("inbox_take_in", params)
    if settled is None:
        raise _taken_over()
    promote(tx, settled[0])


def promote(tx: Transaction, key: str) -> None:
    """Let the oldest message that waits in a conversation be the next one, if none is."""
    tx.run("inbox_promote", {"key": key})


def forget(tx: Transaction, session: int) -> None:
    """Delete what was accepted for the turns of a session."""
    tx.run("inbox_delete_gathered", {"session": session})
    for (key,) in sorted(set(tx.all("inbox_delete", {"session": session}))):
        tx.hold(session_rows.lane_of(key))
        promote(tx, key)


def _lane(arrival: InboxItem) -> str:
    return session_rows.lane_of(arrival.key)


def _taken_over() -> StaleWrite:
    return StaleWrite(
        "The message is no longer yours.",
        hint="Another taker claimed it after the lease had run out.",
    )


def _arrival(row: Row, *, is_new: bool = False) -> InboxItem:
    (id_, _, key, source, body, state, attempts, not_before, received_at, problem,
     gathered_into) = row  # fmt: skip
    said = from_json(body)
    return InboxItem(
        id=id_,
        key=key,
        source=Source.from_dict(from_json(source)),
        text=said["text"],
        message_id=said["message_id"],
        media=tuple(said["media"]),
        state=state,
        attempts=attempts,
        not_before=from_micros(not_before),
        received_at=from_micros(received_at),
        problem=problem,
        gathered_into=gathered_into,
        is_new=is_new,
    )
