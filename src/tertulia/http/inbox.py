"""Inbox items: messages that were accepted and are to be answered."""

from __future__ import annotations

import msgspec

from tertulia.core.session import Page
from tertulia.errors import ConfigError
from tertulia.http.deliveries import Ids
from tertulia.http.parameters import Count, Cursor, Order, Text
from tertulia.http.routing import ApiCall, Operation
from tertulia.records.queues.inbox import InboxItem, InboxState
from tertulia.records.queues.review import MessageOutcome, SettleReport


class InboxQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Filters. `problem` chooses among those that are dead, newest first."""

    state: InboxState | None = None
    key: Text | None = None
    problem: Text | None = None
    order: Order = "oldest"
    limit: Count = 50
    cursor: Cursor | None = None


class ArrivalOutcome(msgspec.Struct, frozen=True):
    """A dead message is answered once more (`retry`), or a message gets no answer (`done`)."""

    outcome: MessageOutcome


class ArrivalsOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of many: of these `ids`, else of the newest dead messages with a problem."""

    outcome: MessageOutcome
    ids: Ids | None = None
    problem: Text | None = None


async def list_arrivals(call: ApiCall) -> Page[InboxItem]:
    query: InboxQuery = call.query
    if query.order == "newest":
        if query.key is not None:
            raise ConfigError(
                "The messages of a conversation are listed oldest first.", hint="Leave order out."
            )
        return await call.api.store.queues.messages(
            state=query.state, problem=query.problem, limit=query.limit, cursor=query.cursor
        )
    if query.problem is not None:
        raise ConfigError("Messages by problem are listed newest first.", hint="Add order=newest.")
    page: Page[InboxItem] = await call.api.store.inbox.find(
        state=query.state, key=query.key, limit=query.limit, cursor=query.cursor
    )
    return page


async def settle_arrival(call: ApiCall) -> InboxItem:
    number = call.number("message", "GET /inbox")
    queues = call.api.store.queues
    await queues.settle_message(number, call.body.outcome, by=call.actor)
    return await queues.require_message(number)


async def settle_arrivals(call: ApiCall) -> SettleReport:
    body: ArrivalsOutcome = call.body
    return await call.api.store.queues.settle_messages(
        body.outcome, ids=body.ids, problem=body.problem, by=call.actor
    )


TABLE = (
    Operation(
        method="GET", path="/inbox", summary="List accepted messages, oldest or newest first.",
        act=list_arrivals, role="owner", query=InboxQuery, answer=Page[InboxItem],
    ),
    Operation(
        method="POST", path="/inbox/settle", act=settle_arrivals, role="owner",
        body=ArrivalsOutcome, answer=SettleReport,
        summary="Answer many dead messages once more, or settle them without an answer.",
    ),
    Operation(
        method="POST", path="/inbox/{id}/settle", has_number=True,
        act=settle_arrival, role="owner",
        body=ArrivalOutcome, answer=InboxItem,
        summary="Answer a dead message once more, or settle a message without an answer.",
    ),
)  # fmt: skip
