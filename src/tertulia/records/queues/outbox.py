"""The outbox: texts to deliver, in order within each chat, each with an idempotency key.

waiting → sending → sent
                  → waiting   it failed and is tried again
                  → dead      the platform refused it for good
                  → unknown   it may or may not have arrived; it is not repeated automatically
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal

import msgspec

from tertulia.core import keys, validate
from tertulia.core.arguments import checks_arguments
from tertulia.core.media import Media
from tertulia.core.message import blob_of_file, from_json, to_json
from tertulia.core.platform import Platform
from tertulia.core.session import Page
from tertulia.core.source import LOCAL, Source
from tertulia.core.target import Target
from tertulia.core.text.spans import FormattedText
from tertulia.core.text.split import split
from tertulia.core.text.storable import storable
from tertulia.errors import ConfigError, NotFound, StaleWrite
from tertulia.platforms import registry
from tertulia.platforms.definition import PlatformDefinition
from tertulia.platforms.registry import PLATFORMS
from tertulia.records.media import release
from tertulia.records.queues import base
from tertulia.records.store_context import StoreContext
from tertulia.storage.base import Params, Row, Step, Transaction
from tertulia.storage.rows import from_micros, to_micros

CHANNEL: Final = "outbox"
# In the body of a delivery that takes the buttons of an earlier one away: the key of that one.
CLOSES: Final = "closes"
AccountKey = tuple[str, str | None]
"""A platform and one of its accounts; None for all of them."""

# The chats of these belong to a token of the HTTP API: their account is its name.
_OF_CALLERS: Final = frozenset({"api", "web"})
_CHAT_COLUMNS: Final = ("platform", "account", "chat_id", "thread_id")

DeliveryState = Literal["waiting", "sending", "sent", "unknown", "dead"]
DELIVERY_STATES: tuple[DeliveryState, ...] = ("waiting", "sending", "sent", "unknown", "dead")


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """One text or file to deliver. `delivery` is its idempotency key, which the platform is given.

    `message_id` is the platform's id of what was sent, if it has given one. `node` is the gateway
    in whose terminal it is to be shown: no other one claims it while that one lives.
    """

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
    message_id: str | None = None
    waived: int = 0
    node: str | None = None

    @property
    def tries(self) -> int:
        """Return how many of the attempts count: not those that were waived."""
        return self.attempts - self.waived


@checks_arguments
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
        is_plain: bool = False,
        reply_to: str | None = None,
        replaces: str | None = None,
        media: Media | None = None,
        node: str | None = None,
    ) -> Delivery:
        """Put a text in and return its delivery. The same `delivery` key is put in only once.

        The text is Markdown, unless it `is_plain`. A text that is too long for its platform is put
        in as several parts; the first is returned. `reply_to` is the id of a message of the chat
        that it answers, `replaces` that of an earlier message of the account that it replaces.
        With `media`, a file that `store.media.put` returned, the first part is that file, and the
        text its caption. `node` is the gateway in whose terminal it is shown, if not this one.
        Raise `ConfigError` if the target is not valid, or its platform has no home channel.
        """
        parts = build_deliveries(
            self._context, text, to, origin, session_id=session_id, delivery=delivery,
            is_plain=is_plain, reply_to=reply_to, replaces=replaces, media=media, node=node,
        )  # fmt: skip
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
        accounts: Collection[AccountKey] | Mapping[AccountKey, int] | None = None,
        idempotent: Collection[str] | Mapping[AccountKey, float] = (),
    ) -> list[Delivery]:
        """Claim deliveries that are due; no other sender gets them while the lease lasts.

        Of each chat only the oldest delivery is claimed, and only when no earlier one is being
        sent. Renew a claim that takes longer than the lease, or its outcome becomes unknown. With
        `platforms` or `accounts` only deliveries to these are claimed, in turn, and no more than
        the number that an account may have in `accounts`; the account None stands for every account
        of its platform. `idempotent` says for how many seconds an account drops a delivery that it
        has had: so long the deliveries of a lost sender are sent again. A name alone stands for a
        platform that never forgets them.
        """
        selection = _accounts_param(platforms, accounts, limit)
        claim, accounts_param = "outbox_claim", {}
        if selection is not None:
            claim, accounts_param = "outbox_claim_for", {"accounts": selection}

        def steps(params: Params) -> list[Step]:
            values = {**params, **accounts_param}
            return [("outbox_find_lost", {}), ("outbox_wake", params), (claim, values)]

        def take(most: int) -> tuple[list[Row], list[Row]]:
            """Return the deliveries of lost senders, and those that were claimed."""
            lost, _, rows = _QUEUE.claim_together(self._context, most, lease_seconds, steps)
            return lost, rows

        lost, rows = take(limit)
        if lost:
            seconds = _idempotent_seconds(idempotent)
            self._db.write(lambda tx: _settle_lost(tx, seconds), lane=_QUEUE.claim_lane)
            rows += take(limit - len(rows))[1] if len(rows) < limit else []
        return sorted(map(to_delivery, rows), key=lambda delivery: delivery.id)

    def wait(
        self,
        seconds: float,
        *,
        platforms: Collection[str] | None = None,
        accounts: Collection[AccountKey] | None = None,
    ) -> bool:
        """Wait until something can be claimed; return False if nothing can after `seconds`."""
        selection = _accounts_param(platforms, accounts, 1)
        if selection is None:
            return _QUEUE.wait(self._context, seconds)
        step = "outbox_is_due_for", {"accounts": selection}
        return _QUEUE.wait(self._context, seconds, lambda: step)

    def renew(self, delivery: Delivery, *, lease_seconds: float = 60) -> None:
        """Extend the lease of a claim; raise `StaleWrite` if the claim was lost."""
        _QUEUE.renew(self._context, delivery, lease_seconds)

    def done(self, delivery: Delivery, *, message_id: str | None = None) -> Delivery:
        """Settle a claimed delivery as sent; raise `StaleWrite` if the claim was lost.

        `message_id` is the id that the platform has given the message.
        """
        (outcome,) = self.done_many([(delivery, message_id)])
        if isinstance(outcome, StaleWrite):
            raise outcome
        return outcome

    def done_many(self, sent: Sequence[tuple[Delivery, str | None]]) -> list[Delivery | StaleWrite]:
        """Settle claimed deliveries as sent, each with the id that the platform has given it.

        Return each as it is stored now, or a `StaleWrite` in the place of one whose claim was lost.
        """
        settlements = []
        for delivery, message_id in sent:
            validate.text("message_id", message_id, optional=True)
            params = base.settle_params(
                self._context, "sent", message_id=storable(message_id), waived=0
            )
            settlements.append((delivery, params))
        outcomes = _QUEUE.settle_many(self._context, settlements)
        return [
            outcome if isinstance(outcome, StaleWrite) else to_delivery(outcome)
            for outcome in outcomes
        ]

    def failed(
        self,
        delivery: Delivery,
        problem: str,
        *,
        retry_after: float | None = None,
        outcome: Literal["retry", "unknown", "dead"] = "retry",
        is_waived: bool = False,
    ) -> Delivery:
        """Settle a claimed delivery as not sent, and return it; `StaleWrite` if the claim was lost.

        By `outcome` it is tried again after `retry_after` seconds ("retry"), is never sent
        ("dead"), or may have arrived ("unknown"). With `is_waived` this attempt does not count as a
        try: the platform asked for a pause, or refused the account and not the message.
        """
        state: DeliveryState = "waiting" if outcome == "retry" else outcome
        params = base.settle_params(
            self._context, state, problem=problem, retry_after=retry_after, message_id=None,
            waived=int(is_waived),
        )  # fmt: skip
        return to_delivery(_QUEUE.settle(self._context, delivery, params))

    def settle_late(
        self,
        delivery: str,
        *,
        is_sent: bool,
        message_id: str | None = None,
        problem: str | None = None,
    ) -> Delivery | None:
        """Store an outcome that the platform reported afterwards, and return the delivery.

        It settles an unknown delivery; a sent one may turn out to have failed. A delivery that is
        dead or waits stays as it is. Return None if there is no such delivery. Raise `StaleWrite`
        while it is still being sent: let the platform report it again.
        """
        state: DeliveryState = "sent" if is_sent else "dead"
        changes = base.settle_params(
            self._context, state, problem=problem, message_id=storable(message_id), waived=0
        )

        def work(tx: Transaction) -> Delivery | None:
            row = tx.one("outbox_get", {"delivery": _stored_key(delivery)})
            if row is None:
                return None
            stored = to_delivery(row)
            if stored.state == "sending":
                raise StaleWrite(
                    "The delivery is still being sent.", hint="Report its outcome again."
                )
            if stored.state == "unknown" or (stored.state == "sent" and not is_sent):
                row = tx.one("outbox_settle_late", {**changes, "id": stored.id})
            return None if row is None else to_delivery(row)

        return self._db.write(work)

    def find(
        self,
        *,
        state: DeliveryState | None = None,
        session_id: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Delivery]:
        """Return a page of deliveries, the first put in first: all, or by state and session."""
        statement = "outbox_find" if state is None else "outbox_find_by_state"
        if session_id is not None:
            statement = "outbox_find_by_session"

        def read(tx: Transaction, page: Params) -> Iterable[Delivery]:
            params = {**page, "state": state, "session_id": session_id}
            return map(to_delivery, tx.all(statement, params))

        return base.find(self._context, limit, cursor, read)

    def count(self, state: DeliveryState, *, limit: int = 1000) -> int:
        """Return how many deliveries have a state, counted up to `limit`."""
        return _QUEUE.count(self._context, state, limit)

    def get(self, delivery: str) -> Delivery | None:
        """Return a delivery by its idempotency key, or None."""
        params = {"delivery": _stored_key(delivery)}
        row = self._db.read(lambda tx: tx.one("outbox_get", params))
        return None if row is None else to_delivery(row)

    def find_in_chat(self, source: Source, *, after: int = 0, limit: int = 50) -> list[Delivery]:
        """Return the deliveries to a source's chat whose ids are above `after`, oldest first."""
        base.check_limit(limit)
        params = {**_chat_of(source), "after": after, "limit": limit}
        return list(map(to_delivery, self._db.read(lambda tx: tx.all("outbox_in_chat", params))))

    def find_newest_in_chat(self, source: Source, *, limit: int = 50) -> list[Delivery]:
        """Return the newest deliveries to a source's chat, the newest first."""
        base.check_limit(limit)
        params = {**_chat_of(source), "limit": limit}
        rows = self._db.read(lambda tx: tx.all("outbox_newest_in_chat", params))
        return list(map(to_delivery, rows))

    def resume(self, source: Source) -> bool:
        """End the pause of the oldest waiting delivery to a source's chat; return if it had one.

        For a recipient who was away and is there again.
        """
        chat = _chat_of(source)
        # Read first: most chats have nothing that waits, and a read delays nobody.
        row = self._db.read(lambda tx: tx.one("outbox_head_of_chat", chat))
        if row is None or row[1] != "waiting" or not row[2]:
            return False
        params = {"id": row[0]}
        lane = _lane(*chat.values())
        is_resumed = self._db.write(lambda tx: tx.changed("outbox_resume", params) > 0, lane=lane)
        self._db.notify(CHANNEL)
        return is_resumed


def _chat_of(source: Source) -> dict[str, str | None]:
    return {
        "platform": source.platform,
        "account": storable(source.account) or "",
        "chat_id": storable(source.chat_id),
        "thread_id": storable(source.thread_id),
    }


def build_deliveries(
    context: StoreContext,
    text: str,
    to: str,
    origin: Source | None,
    *,
    session_id: str | None = None,
    delivery: str | None = None,
    is_plain: bool = False,
    reply_to: str | None = None,
    replaces: str | None = None,
    media: Media | None = None,
    node: str | None = None,
) -> list[Delivery]:
    """Return the deliveries of a text: the target resolved to a chat, a long text in parts.

    The text is Markdown, unless it `is_plain`. The first part replies to a message of the chat, or
    replaces one of the account.

    Raise `ConfigError` if the target is invalid or names a platform without a home channel.
    """
    validate.text("text", text)
    validate.text("to", to)
    validate.text("delivery", delivery, optional=True)
    references = {
        "reply_to": storable(reply_to),
        "replaces": storable(replaces),
        "media": None if media is None else media.to_dict(),
    }
    target = Target.parse(to, origin, known=PLATFORMS)
    chat_id, thread_id, account = target.chat_id, target.thread_id, ""
    if chat_id is None and target.platform != LOCAL:
        home = context.settings.homes.get(target.platform)
        if home is None:
            raise ConfigError(
                f"There is no home channel for {target.platform}.",
                hint=f"Name a chat as {target.platform}:CHAT, or set homes in the settings.",
                field="to",
            )
        chat_id, thread_id = home.chat_id, home.thread_id
        account = home.account
    if origin is not None and _has_account_of(target, chat_id, origin):
        account = origin.account
    first = Delivery(
        delivery=_stored_key(delivery) if delivery else os.urandom(16).hex(),
        session_id=session_id,
        target=storable(str(target)) or "",
        platform=target.platform,
        account=storable(account) or "",
        chat_id=storable(chat_id),
        thread_id=storable(thread_id),
        body={"text": text},
        node=(node or context.terminal.name) if target.platform == LOCAL else None,
    )
    bodies = _make_bodies(registry.platform(target.platform), text, is_plain=is_plain)
    bodies[0] |= {name: value for name, value in references.items() if value is not None}
    return [_make_part(first, *part) for part in enumerate(bodies)]


def _has_account_of(target: Target, chat_id: str | None, origin: Source) -> bool:
    """Return whether the chat of a target belongs to the account of an origin."""
    if (target.platform, chat_id) == (origin.platform, origin.chat_id):
        return True
    is_of_caller = origin.platform in _OF_CALLERS and target.platform in _OF_CALLERS
    return is_of_caller and target.chat_id is not None


def _make_bodies(platform: Platform, text: str, *, is_plain: bool) -> list[dict[str, Any]]:
    """Return the bodies of the parts of a text, each as long and formatted as the platform can."""
    if is_plain or not isinstance(platform, PlatformDefinition) or platform.format is None:
        parts = split(text, platform.length_limit, platform.length_unit)
        return [{"text": part} for part in parts] or [{"text": text}]
    formatted = platform.format(text)
    return [_formatted_body(part) for part in formatted] or [{"text": text}]


def _formatted_body(part: FormattedText) -> dict[str, Any]:
    spans = [list(msgspec.structs.astuple(span)) for span in part.spans]
    return {"text": part.text} | ({"spans": spans} if spans else {})


def _stored_key(delivery: str) -> str:
    """Return the key unchanged if every database can index it, else a hash of it."""
    is_plain = delivery.isprintable() and len(delivery.encode()) <= keys.MAX_PART_BYTES
    return delivery if is_plain else keys.key_part(delivery)


def _make_part(whole: Delivery, number: int, body: dict[str, Any]) -> Delivery:
    """Return one part of a delivery. The first part has the key of the whole.

    So looking that key up tells whether the delivery was put in.
    """
    delivery = whole.delivery if number == 0 else f"{whole.delivery}/{number + 1}"
    return msgspec.structs.replace(whole, delivery=delivery, body=body)


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
            "node": delivery.node,
            "now": now,
        }
        tx.run("outbox_put", params)


def _settle_lost(tx: Transaction, idempotent: Mapping[AccountKey, float]) -> None:
    """Send the deliveries of lost senders again if that does no harm; else mark them as unknown.

    It does none if the account drops a delivery that it has had, for the seconds in `idempotent`,
    or if the delivery only takes buttons away.
    """
    for id_, age, body, platform, account, *rest_of_chat in tx.all("outbox_find_lost"):
        seconds = idempotent.get((platform, account)) or idempotent.get((platform, None)) or 0.0
        if CLOSES in from_json(body) or (age or 0) < seconds * 1e6:
            tx.run("outbox_resend", {"id": id_})
        else:
            tx.run("outbox_set_unknown", {"id": id_})
            _promote(tx, (platform, account, *rest_of_chat))


def _accounts_param(
    platforms: Collection[str] | None,
    accounts: Collection[AccountKey] | Mapping[AccountKey, int] | None,
    limit: int,
) -> str | None:
    """Return the accounts to claim for, each with its maximum, as JSON; None for all accounts."""
    if platforms is None and accounts is None:
        return None
    limits: dict[AccountKey, int] = {(name, None): limit for name in platforms or ()}
    limits |= accounts if isinstance(accounts, Mapping) else dict.fromkeys(accounts or (), limit)
    return to_json([[*key, number] for key, number in limits.items()])


def _idempotent_seconds(
    idempotent: Collection[str] | Mapping[AccountKey, float],
) -> Mapping[AccountKey, float]:
    """Return for how many seconds each account drops a delivery that it has had."""
    if isinstance(idempotent, Mapping):
        return idempotent
    return {(name, None): math.inf for name in idempotent}


def lane_of(delivery: Delivery) -> str:
    """Return the lane of a delivery: its chat."""
    return _lane(*_columns_of_lane(delivery).values())


def _columns_of_lane(delivery: Delivery) -> dict[str, str | None]:
    return {
        "platform": delivery.platform,
        "account": delivery.account,
        "chat_id": delivery.chat_id,
        "thread_id": delivery.thread_id,
    }


def _lane(*chat: str | None) -> str:
    return f"chat {':'.join([keys.escape(part) if part else '' for part in chat])}"


def _promote(tx: Transaction, chat: Row) -> None:
    tx.lock(_lane(*chat))
    _QUEUE.promote(tx, dict(zip(_CHAT_COLUMNS, chat, strict=True)))


def delete_of_session(tx: Transaction, session_id: str) -> None:
    """Delete all deliveries of a session, sent ones included."""
    rows = tx.all("outbox_delete", {"session_id": session_id})
    files = [from_json(body).get("media") for *_, body in rows if '"media"' in body]
    release(tx, [blob_of_file(file["hash"]) for file in files if file and file.get("hash")])
    for chat in sorted({tuple(chat) for *chat, _ in rows}, key=str):
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
    return to_delivery(row)


def to_delivery(row: Row) -> Delivery:
    """Return the delivery of a row of the outbox."""
    (id_, delivery, session_id, target, platform, account, chat_id, thread_id, body, state,
     attempts, not_before, created_at, sent_at, problem, message_id, waived,
     node) = row  # fmt: skip
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
        message_id=message_id,
        waived=waived,
        node=node,
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
