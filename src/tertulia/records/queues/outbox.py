"""The outbox: texts to deliver, in order within each chat, each with an idempotency key.

waiting → sending → sent
                  → waiting   it failed and is tried again
                  → dead      the platform refused it for good
                  → unknown   it may or may not have arrived; it is not repeated automatically
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal

import msgspec

from tertulia.core import keys, validate
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
from tertulia.storage.base import Params, Row, Transaction
from tertulia.storage.rows import from_micros, to_micros

CHANNEL: Final = "outbox"
_CHAT: Final = ("platform", "account", "chat_id", "thread_id")

DeliveryState = Literal["waiting", "sending", "sent", "unknown", "dead"]
DELIVERY_STATES: tuple[DeliveryState, ...] = ("waiting", "sending", "sent", "unknown", "dead")


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """One text to deliver. `delivery` is its idempotency key, which the platform is given."""

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
    """The deliveries of a store."""

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
        """Put a text in and return its delivery. The same `delivery` key is put in only once.

        A text that is too long for its platform is put in as several parts; the first is returned.
        """
        parts = build_deliveries(
            self._context, text, to, origin, session_id=session_id, delivery=delivery
        )
        now = to_micros(self._context.clock.now())

        def work(tx: Transaction) -> Delivery:
            put_in(tx, parts, now)
            return _require(tx, parts[0].delivery)

        first = self._db.write(work, lane=lane_of(parts[0]))
        self._db.notify(CHANNEL)
        return first

    def claim(
        self,
        limit: int = 10,
        *,
        lease_seconds: float = 60,
        platforms: Collection[str] | None = None,
        idempotent: Collection[str] = (),
    ) -> list[Delivery]:
        """Claim deliveries that are due; no other sender gets them while the lease lasts.

        Of each chat only the oldest delivery is claimed, and only when no earlier one is being
        sent. Renew a claim that takes longer than the lease, or its outcome becomes unknown. With
        `platforms` only deliveries to these are claimed. `idempotent` names platforms that drop a
        delivery they have had: there, the deliveries of a lost sender are sent again.
        """

        def take(tx: Transaction, params: Params) -> list[Delivery]:
            for id_, platform, *rest_of_chat in tx.all("outbox_find_lost"):
                if platform in idempotent:
                    tx.run("outbox_resend", {"id": id_})
                else:
                    tx.run("outbox_set_unknown", {"id": id_})
                    _promote(tx, (platform, *rest_of_chat))
            if platforms is None:
                rows = tx.all("outbox_claim", params)
            else:
                rows = _claim_for(tx, sorted(platforms), params)
            return sorted(map(_to_delivery, rows), key=lambda delivery: delivery.id)

        return _QUEUE.claim(self._context, limit, lease_seconds, take)

    def wait(self, seconds: float, *, platforms: Collection[str] | None = None) -> bool:
        """Wait until something can be claimed; return False if nothing can after `seconds`."""
        if platforms is None:
            return _QUEUE.wait(self._context, seconds)
        names = sorted(platforms)

        def is_due(tx: Transaction, now: int) -> bool:
            params = ({"platform": name, "now": now} for name in names)
            rows = (tx.one("outbox_is_due_for", values) for values in params)
            return any(row is not None and row[0] for row in rows)

        return _QUEUE.wait(self._context, seconds, is_due)

    def renew(self, delivery: Delivery, *, lease_seconds: float = 60) -> None:
        """Extend the lease of a claim; raise `StaleWrite` if the claim was lost."""
        _QUEUE.renew(self._context, delivery, lease_seconds)

    def done(self, delivery: Delivery) -> Delivery:
        """Settle a claimed delivery as sent; raise `StaleWrite` if the claim was lost."""
        params = base.settle_params(self._context, "sent")
        return _to_delivery(_QUEUE.settle(self._context, delivery, params))

    def failed(
        self,
        delivery: Delivery,
        problem: str,
        *,
        retry_after: float | None = None,
        outcome: Literal["retry", "unknown", "dead"] = "retry",
    ) -> Delivery:
        """Settle a claimed delivery as not sent, and return it; `StaleWrite` if the claim was lost.

        By `outcome` it is tried again after `retry_after` seconds ("retry"), is never sent
        ("dead"), or may have arrived ("unknown").
        """
        base.check_choice("outcome", outcome, ("retry", "unknown", "dead"))
        state: DeliveryState = "waiting" if outcome == "retry" else outcome
        params = base.settle_params(self._context, state, problem=problem, retry_after=retry_after)
        return _to_delivery(_QUEUE.settle(self._context, delivery, params))

    def find(
        self,
        *,
        state: DeliveryState | None = None,
        session_id: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Delivery]:
        """Return a page of deliveries in the order they were put in."""
        if state is not None:
            base.check_choice("state", state, DELIVERY_STATES)
        statement = "outbox_find" if state is None else "outbox_find_by_state"

        def read(tx: Transaction, page: Params) -> Iterable[Delivery]:
            params = {**page, "state": state, "session_id": session_id}
            return map(_to_delivery, tx.all(statement, params))

        return base.find(self._context, limit, cursor, read)


def build_deliveries(
    context: StoreContext,
    text: str,
    to: str,
    origin: Source | None,
    *,
    session_id: str | None = None,
    delivery: str | None = None,
) -> list[Delivery]:
    """Return the deliveries of a text: the target resolved to a chat, a long text in parts.

    Raise `ConfigError` if the target is invalid or names a platform without a home channel.
    """
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
    is_origin_chat = origin is not None and (target.platform, chat_id) == (
        origin.platform,
        origin.chat_id,
    )
    first = Delivery(
        delivery=_id_of(delivery) if delivery else os.urandom(16).hex(),
        session_id=session_id,
        target=storable(str(target)) or "",
        platform=target.platform,
        account=storable(origin.account) or "" if origin is not None and is_origin_chat else "",
        chat_id=storable(chat_id),
        thread_id=storable(thread_id),
        body={"text": text},
    )
    limits = registry.platform(target.platform)
    parts = split(text, limits.length_limit, limits.length_unit)
    return [first] if len(parts) < 2 else [_part(first, *part) for part in enumerate(parts)]


def _id_of(delivery: str) -> str:
    """Return the key unchanged if every database can index it, else a hash of it."""
    is_plain = delivery.isprintable() and len(delivery.encode()) <= keys.MAX_PART_BYTES
    return delivery if is_plain else keys.key_part(delivery)


def _part(whole: Delivery, number: int, text: str) -> Delivery:
    """Return one part of a delivery. The first part has the key of the whole.

    So looking that key up tells whether the delivery was put in.
    """
    delivery = whole.delivery if number == 0 else f"{whole.delivery}/{number + 1}"
    return msgspec.structs.replace(whole, delivery=delivery, body={"text": text})


def put_in(tx: Transaction, parts: Sequence[Delivery], now: int) -> None:
    """Put the parts of a delivery in, within a transaction."""
    tx.lock(lane_of(parts[0]))
    for delivery in parts:
        params = {
            "delivery": delivery.delivery,
            "session_id": delivery.session_id,
            "target": delivery.target,
            "platform": delivery.platform,
            "account": delivery.account,
            "chat_id": delivery.chat_id,
            "thread_id": delivery.thread_id,
            "body": to_json(delivery.body),
            "now": now,
        }
        tx.run("outbox_put", params)


def _claim_for(tx: Transaction, platforms: Sequence[str], params: Mapping[str, Any]) -> list[Row]:
    rows: list[Row] = []
    for name in platforms:
        left = params["limit"] - len(rows)
        if left:
            rows += tx.all("outbox_claim_for", {**params, "platform": name, "limit": left})
    return rows


def lane_of(delivery: Delivery) -> str:
    """Return the lane of a delivery: its chat."""
    return _lane(*_columns_of_lane(delivery).values())


def _columns_of_lane(delivery: Delivery) -> dict[str, str | None]:
    return {name: getattr(delivery, name) for name in _CHAT}


def _lane(*chat: str | None) -> str:
    return f"chat {':'.join(keys.escape(part or '') for part in chat)}"


def _promote(tx: Transaction, chat: Row) -> None:
    tx.lock(_lane(*chat))
    _QUEUE.promote(tx, dict(zip(_CHAT, chat, strict=True)))


def delete_of_session(tx: Transaction, session_id: str) -> None:
    """Delete all deliveries of a session, sent ones included."""
    for chat in sorted(set(tx.all("outbox_delete", {"session_id": session_id})), key=str):
        _promote(tx, chat)


def _stale(tx: Transaction, delivery: Delivery) -> StaleWrite:
    stored = _require(tx, delivery.delivery)
    return StaleWrite(
        f"This sender no longer has the delivery, which is {stored.state} now.",
        hint="The claim was lost after its lease had run out; renew it in time.",
    )


def _require(tx: Transaction, delivery: str) -> Delivery:
    row = tx.one("outbox_get", {"delivery": delivery})
    if row is None:
        raise NotFound(
            f"There is no delivery {delivery!r}.", hint="store.outbox.find() lists them all."
        )
    return _to_delivery(row)


def _to_delivery(row: Row) -> Delivery:
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


_QUEUE: Final = base.ClaimQueue(
    table="outbox",
    channel=CHANNEL,
    argument="delivery",
    entry_type=Delivery,
    lane_name=lane_of,
    lane=_columns_of_lane,
    stale=_stale,
)
