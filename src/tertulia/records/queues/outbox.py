"""The outbox: what is to be delivered, in order for each chat, each with an idempotency key.

waiting → sending → sent
                  → waiting   it failed and will be tried again
                  → dead      it was refused for good
                  → unknown   nobody can say whether it arrived; it is not repeated by itself
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal

import msgspec

from tertulia.core import (
    keys,
    validate,
)
from tertulia.core.message import from_json, to_json
from tertulia.core.session import Page
from tertulia.core.source import LOCAL, Source
from tertulia.core.target import Target
from tertulia.core.text.split import split
from tertulia.core.text.storable import storable
from tertulia.errors import ConfigError, NotFound, StaleWrite
from tertulia.platforms import registry
from tertulia.platforms.registry import PLATFORMS
from tertulia.records.queues import base
from tertulia.records.store_context import StoreContext
from tertulia.storage.base import Row, Transaction
from tertulia.storage.rows import from_micros, to_micros

CHANNEL: Final = "outbox"
CLAIMS: Final = "claims from the outbox"

DeliveryState = Literal["waiting", "sending", "sent", "unknown", "dead"]
DELIVERY_STATES: tuple[DeliveryState, ...] = ("waiting", "sending", "sent", "unknown", "dead")


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to deliver. `delivery` is the key a platform is given so that it comes once."""

    id: int = 0
    delivery: str
    session_id: str | None
    target: str
    platform: str
    account: str
    chat_id: str | None
    thread_id: str | None
    body: dict[str, Any]
    state: DeliveryState = "waiting"
    attempts: int = 0
    not_before: datetime | None = None
    created_at: datetime | None = None
    sent_at: datetime | None = None
    problem: str | None = None


class Outbox:
    """What a store has to deliver."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context
        self._db = context.db

    def put(
        self,
        text: str,
        to: str,
        *,
        origin: Source | None = None,
        session_id: str | None = None,
        delivery: str | None = None,
    ) -> Delivery:
        """Put a message in. The same `delivery` twice is put in once.

        What is too long for its platform is put in as several parts; the first one is returned.
        """
        made = deliveries_to(
            self._context, text, to, origin, session_id=session_id, delivery=delivery
        )
        now = to_micros(self._context.clock.now())

        def work(tx: Transaction) -> Delivery:
            put_in(tx, made, now)
            return _require(tx, made[0].delivery)

        put = self._db.write(work, lane=lane_of(made[0]))
        self._db.notify(CHANNEL)
        return put

    def claim(
        self,
        limit: int = 10,
        *,
        lease_seconds: float = 60,
        platforms: Collection[str] | None = None,
        idempotent: Collection[str] = (),
    ) -> list[Delivery]:
        """Take what is due for sending; nobody else gets it while the lease lasts.

        Of each chat that is the oldest, and only when nothing older is still under way. Whoever
        takes longer than the lease renews it, or the outcome becomes unknown. With `platforms`
        only what is for these is taken. `idempotent` are platforms that drop a delivery they have
        had: there, what a lost sender had is sent again.
        """
        base.check_limit(limit)
        params = {
            "now": to_micros(self._context.clock.now()),
            "lease": base.lease_micros(lease_seconds),
            "limit": limit,
        }

        def work(tx: Transaction) -> list[Delivery]:
            for id_, platform, *place in tx.all("outbox_lost"):
                if platform in idempotent:
                    tx.run("outbox_resend", {"id": id_})
                else:
                    tx.run("outbox_lose", {"id": id_})
                    promote(tx, (platform, *place))
            if platforms is None:
                rows = tx.all("outbox_claim", params)
            else:
                rows = _claim_for(tx, sorted(platforms), params)
            return sorted(map(_parcel, rows), key=lambda p: p.id)

        return self._db.write(work, lane=CLAIMS)

    def wait(self, seconds: float, *, platforms: Collection[str] | None = None) -> bool:
        """Wait until there is something to claim; False if nothing came in that time."""
        asked: list[tuple[str, dict[str, Any]]] = [("outbox_is_due", {})]
        if platforms is not None:
            asked = [("outbox_is_due_for", {"platform": name}) for name in sorted(platforms)]
        return base.wait(self._context, CHANNEL, asked, seconds)

    def renew(self, parcel: Delivery, *, lease_seconds: float = 60) -> None:
        """Keep a claim for longer."""
        lease = base.lease_micros(lease_seconds)
        params = {"id": parcel.id, "attempts": parcel.attempts, "lease": lease}

        def work(tx: Transaction) -> None:
            if tx.changed("outbox_renew", params) == 0:
                raise _taken_over(tx, parcel)

        self._db.write(work, lane=lane_of(parcel))

    def done(self, parcel: Delivery) -> Delivery:
        """It was sent."""
        return self._settle(parcel, "sent", None, None)

    def failed(
        self,
        parcel: Delivery,
        problem: str,
        *,
        retry_after: float | None = None,
        outcome: Literal["retry", "unknown", "dead"] = "retry",
    ) -> Delivery:
        """It was not sent: try again after some seconds, give up, or say that nobody knows."""
        base.check_word("outcome", outcome, ("retry", "unknown", "dead"))
        state: DeliveryState = "waiting" if outcome == "retry" else outcome
        return self._settle(parcel, state, problem, retry_after)

    def find(
        self,
        *,
        state: DeliveryState | None = None,
        session_id: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Delivery]:
        """Deliveries in the order they were put in."""
        base.check_limit(limit)
        if state is not None:
            base.check_word("state", state, DELIVERY_STATES)
        params = {
            "state": state,
            "session_id": session_id,
            "after": base.after(cursor),
            "limit": limit + 1,
        }
        statement = "outbox_find" if state is None else "outbox_find_by_state"
        found = self._db.read(lambda tx: [_parcel(row) for row in tx.all(statement, params)])
        return base.page(found, limit)

    def _settle(
        self, parcel: Delivery, state: DeliveryState, problem: str | None, after: float | None
    ) -> Delivery:
        base.check_claimed("parcel", parcel, Delivery)
        now = self._context.clock.now()
        params = {
            "id": parcel.id,
            "state": state,
            "attempts": parcel.attempts,
            "problem": storable(problem),
            "now": to_micros(now),
            "not_before": to_micros(base.later(now, after)),
        }

        def work(tx: Transaction) -> Delivery:
            row = tx.one("outbox_settle", params)
            if row is None:
                raise _taken_over(tx, parcel)
            settled = _parcel(row)
            promote(tx, _chat(settled))
            return settled

        settled = self._db.write(work, lane=lane_of(parcel))
        self._db.notify(CHANNEL)
        return settled


def deliveries_to(
    context: StoreContext,
    text: str,
    to: str,
    origin: Source | None,
    *,
    session_id: str | None = None,
    delivery: str | None = None,
) -> list[Delivery]:
    """A delivery made ready: its target is resolved to a real place, its text is in parts."""
    validate.text("text", text)
    validate.text("to", to)
    validate.text("delivery", delivery, optional=True)
    target = Target.parse(to, origin, known=PLATFORMS)
    chat_id, thread_id = target.chat_id, target.thread_id
    if chat_id is None and target.platform != LOCAL:
        home = context.settings.homes.get(target.platform)
        if home is None:
            raise ConfigError(
                f"There is no home channel for {target.platform}.",
                hint=f"Name a chat as {target.platform}:CHAT, or set homes in the settings.",
                field="to",
            )
        chat_id, thread_id = home.chat_id, home.thread_id
    is_back = origin is not None and (target.platform, chat_id) == (origin.platform, origin.chat_id)
    first = Delivery(
        delivery=_id_of(delivery) if delivery else os.urandom(16).hex(),
        session_id=session_id,
        target=storable(str(target)) or "",
        platform=target.platform,
        account=storable(origin.account) or "" if origin is not None and is_back else "",
        chat_id=storable(chat_id),
        thread_id=storable(thread_id),
        body={"text": text},
    )
    limits = registry.platform(target.platform)
    parts = split(text, limits.length_limit, limits.length_unit)
    return [first] if len(parts) < 2 else [_part(first, *part) for part in enumerate(parts)]


def _id_of(delivery: str) -> str:
    """As it was given, unless it is nothing that every database can index."""
    is_plain = delivery.isprintable() and len(delivery.encode()) <= keys.LONGEST_PART
    return delivery if is_plain else keys.part_of(delivery)


def _part(whole: Delivery, number: int, text: str) -> Delivery:
    """The first part has the key of the whole, so that it is known whether it was put in."""
    delivery = whole.delivery if number == 0 else f"{whole.delivery}/{number + 1}"
    return msgspec.structs.replace(whole, delivery=delivery, body={"text": text})


def put_in(tx: Transaction, made: Sequence[Delivery], now: int) -> None:
    """Put the parts of a delivery in within a transaction."""
    tx.hold(lane_of(made[0]))
    for parcel in made:
        params = {
            "delivery": parcel.delivery,
            "session_id": parcel.session_id,
            "target": parcel.target,
            "platform": parcel.platform,
            "account": parcel.account,
            "chat_id": parcel.chat_id,
            "thread_id": parcel.thread_id,
            "body": to_json(parcel.body),
            "now": now,
        }
        tx.run("outbox_put", params)


def _claim_for(tx: Transaction, platforms: Sequence[str], params: Mapping[str, Any]) -> list[Row]:
    found: list[Row] = []
    for name in platforms:
        left = params["limit"] - len(found)
        if left:
            found += tx.all("outbox_claim_for", {**params, "platform": name, "limit": left})
    return found


def lane_of(parcel: Delivery) -> str:
    """The lane of a chat: what is put in and sent there goes one after the other."""
    return _lane(*_chat(parcel))


def _chat(parcel: Delivery) -> Row:
    return parcel.platform, parcel.account, parcel.chat_id, parcel.thread_id


def _lane(*chat: str | None) -> str:
    return f"chat {':'.join(keys.escape(part or '') for part in chat)}"


def promote(tx: Transaction, chat: Row) -> None:
    """Let the oldest delivery that waits for a chat be the next one, if none is."""
    tx.hold(_lane(*chat))
    platform, account, chat_id, thread_id = chat
    params = {
        "platform": platform,
        "account": account,
        "chat_id": chat_id,
        "thread_id": thread_id,
    }
    tx.run("outbox_promote", params)


def forget(tx: Transaction, session_id: str) -> None:
    """Delete what a session has to deliver, and what it delivered."""
    for chat in sorted(set(tx.all("outbox_delete", {"session_id": session_id})), key=str):
        promote(tx, chat)


def _taken_over(tx: Transaction, parcel: Delivery) -> StaleWrite:
    found = _require(tx, parcel.delivery)
    return StaleWrite(
        f"The delivery is {found.state} and no longer yours.",
        hint="Another sender claimed it after the lease had run out.",
    )


def _require(tx: Transaction, delivery: str) -> Delivery:
    row = tx.one("outbox_get", {"delivery": delivery})
    if row is None:
        raise NotFound(
            f"There is no delivery {delivery!r}.", hint="store.outbox.find() lists them."
        )
    return _parcel(row)


def _parcel(row: Row) -> Delivery:
    (id_, delivery, session_id, target, platform, account, chat_id, thread_id, body, state,
     attempts, not_before, created_at, sent_at, problem) = row  # fmt: skip
    return Delivery(
        id=id_,
        delivery=delivery,
        session_id=session_id,
        target=target,
        platform=platform,
        account=account,
        chat_id=chat_id,
        thread_id=thread_id,
        body=from_json(body),
        state=state,
        attempts=attempts,
        not_before=from_micros(not_before),
        created_at=from_micros(created_at),
        sent_at=None if sent_at is None else from_micros(sent_at),
        problem=problem,
    )
