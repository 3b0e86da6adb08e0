"""Deliveries: list them, and settle by hand those whose outcome is unknown or dead."""

from __future__ import annotations

import uuid
from typing import Annotated

import msgspec
from msgspec import Meta

from tertulia.core.session import Page
from tertulia.core.source import Source
from tertulia.core.target import Target
from tertulia.errors import ConfigError
from tertulia.http.auth import WEB
from tertulia.http.parameters import Count, Cursor, Order, Text
from tertulia.http.routing import ApiCall, Operation
from tertulia.platforms.registry import PLATFORMS
from tertulia.records.queues.inbox import InboxItem
from tertulia.records.queues.outbox import Delivery, DeliveryState
from tertulia.records.queues.review import (
    SETTLE_LIMIT,
    DeliveryOutcome,
    QueueOverview,
    SettleReport,
)

Ids = Annotated[tuple[Annotated[int, Meta(ge=1)], ...], Meta(max_length=SETTLE_LIMIT)]


class DeliveryQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Filters. `platform` and `problem` choose among those that are unknown or dead."""

    state: DeliveryState | None = None
    session_id: Text | None = None
    platform: Text | None = None
    problem: Text | None = None
    order: Order = "oldest"
    limit: Count = 50
    cursor: Cursor | None = None


class OpenQuery(msgspec.Struct, frozen=True, kw_only=True):
    """How many of each state."""

    limit: Count = 50


class OpenEntries(msgspec.Struct, frozen=True, kw_only=True):
    """The newest entries of each state that is not settled well: unknown, dead, waiting, taken."""

    deliveries: tuple[Delivery, ...]
    messages: tuple[InboxItem, ...]


class DeliverRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A text for a chat: `to` is a target such as `telegram:42`, or a platform for its home.

    Under the same `delivery` a text is sent once, however often it is requested. `account` is the
    account of the platform that the chat belongs to. That of a chat of `web` is the name of a
    token, the caller's own if it is left out; for a guest it is TOKEN/VISITOR.
    """

    text: Annotated[str, Meta(min_length=1)]
    to: Text
    delivery: Text | None = None
    account: Annotated[Text, Meta(min_length=1)] | None = None


class SettleRequest(msgspec.Struct, frozen=True):
    """The outcome of a delivery: it was sent, is to be sent again (`retry`), or is given up."""

    outcome: DeliveryOutcome


class SettleManyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of many: of these `ids`, else of the newest of a group of the overview."""

    outcome: DeliveryOutcome
    ids: Ids | None = None
    state: DeliveryState = "dead"
    platform: Text | None = None
    problem: Text | None = None


async def list_deliveries(call: ApiCall) -> Page[Delivery]:
    query: DeliveryQuery = call.query
    if query.order == "newest":
        if query.session_id is not None:
            raise ConfigError(
                "The deliveries of a session are listed oldest first.", hint="Leave order out."
            )
        return await call.api.store.queues.deliveries(
            state=query.state, platform=query.platform, problem=query.problem,
            limit=query.limit, cursor=query.cursor,
        )  # fmt: skip
    if query.platform is not None or query.problem is not None:
        raise ConfigError(
            "Deliveries by platform or problem are listed newest first.", hint="Add order=newest."
        )
    return await call.api.store.outbox.find(
        state=query.state, session_id=query.session_id, limit=query.limit, cursor=query.cursor
    )


async def deliver(call: ApiCall) -> Delivery:
    body: DeliverRequest = call.body
    # The name of the token keeps its keys apart from those of the gateway.
    key = f"api:{call.caller.name}:{body.delivery or uuid.uuid4().hex}"
    return await call.api.store.outbox.put(body.text, body.to, origin=_chat_of(call), delivery=key)


def _chat_of(call: ApiCall) -> Source | None:
    """Return the chat that a request names, with its account; None for the home of a platform."""
    body: DeliverRequest = call.body
    target = Target.parse(body.to, known=PLATFORMS)
    if target.chat_id is None:
        if body.account is not None:
            raise ConfigError(
                "An account is given, but no chat.", hint="Write to as platform:chat.", field="to"
            )
        return None
    account = body.account or ""
    if target.platform == WEB:
        account = body.account or call.caller.name
        _check_web_account(call, account)
    return Source(target.platform, target.chat_id, account=account)


def _check_web_account(call: ApiCall, account: str) -> None:
    """Raise `ConfigError` if nobody can open a chat of that account."""
    name, _, visitor = account.partition("/")
    token = call.api.token_of(name)
    is_guest = token is not None and token.role == "guest"
    if account == call.caller.name or (token is not None and is_guest == bool(visitor)):
        return
    raise ConfigError(
        "The account is no token of this gateway.",
        hint="Give the name of a token, for a guest with its visitor: TOKEN/VISITOR.",
        field="account",
    )


async def get_delivery(call: ApiCall) -> Delivery:
    return await call.api.store.queues.require_delivery(call.number("delivery", "GET /deliveries"))


async def review_queues(call: ApiCall) -> QueueOverview:
    return await call.api.store.queues.overview()


async def list_open(call: ApiCall) -> OpenEntries:
    queues, limit = call.api.store.queues, call.query.limit
    return OpenEntries(
        deliveries=tuple(await queues.open_deliveries(limit=limit)),
        messages=tuple(await queues.open_messages(limit=limit)),
    )


async def settle_delivery(call: ApiCall) -> Delivery:
    number = call.number("delivery", "GET /deliveries")
    return await call.api.store.queues.settle_delivery(number, call.body.outcome, by=call.actor)


async def settle_deliveries(call: ApiCall) -> SettleReport:
    body: SettleManyRequest = call.body
    return await call.api.store.queues.settle_deliveries(
        body.outcome, ids=body.ids, state=body.state, platform=body.platform,
        problem=body.problem, by=call.actor,
    )  # fmt: skip


TABLE = (
    Operation(
        method="GET", path="/deliveries", summary="List deliveries, oldest or newest first.",
        act=list_deliveries, role="owner", query=DeliveryQuery, answer=Page[Delivery],
    ),
    Operation(
        method="POST", path="/deliveries", act=deliver, role="owner", body=DeliverRequest,
        answer=Delivery, summary="Send a text to a chat.",
    ),
    Operation(
        method="GET", path="/deliveries/overview", act=review_queues, role="owner",
        answer=QueueOverview,
        summary="Count what is unknown, dead, waiting or in progress, and group it by problem.",
    ),
    Operation(
        method="GET", path="/deliveries/open", act=list_open, role="owner", query=OpenQuery,
        answer=OpenEntries,
        summary="List the newest deliveries and messages of each state that is not settled well.",
    ),
    Operation(
        method="POST", path="/deliveries/settle", act=settle_deliveries, role="owner",
        body=SettleManyRequest, answer=SettleReport,
        summary="Set the outcome of many deliveries, and report which had changed meanwhile.",
    ),
    Operation(
        method="GET", path="/deliveries/{id}", has_number=True,
        act=get_delivery, role="owner", answer=Delivery,
        summary="Get one delivery.",
    ),
    Operation(
        method="POST", path="/deliveries/{id}/settle", has_number=True,
        act=settle_delivery, role="owner",
        summary="Set the outcome of a delivery that is unknown or dead, or send it again.",
        body=SettleRequest, answer=Delivery,
    ),
)  # fmt: skip
