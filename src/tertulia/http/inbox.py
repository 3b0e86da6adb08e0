"""Inbox items: messages that were accepted and are to be answered."""

from __future__ import annotations

import msgspec

from tertulia.core.session import Page
from tertulia.http.parameters import Count, Cursor, Text
from tertulia.http.routing import ApiCall, Operation
from tertulia.records.queues.inbox import InboxItem, InboxState


class InboxQuery(msgspec.Struct, frozen=True, kw_only=True):
    state: InboxState | None = None
    key: Text | None = None
    limit: Count = 50
    cursor: Cursor | None = None


async def list_arrivals(call: ApiCall) -> Page[InboxItem]:
    query: InboxQuery = call.query
    page: Page[InboxItem] = await call.api.store.inbox.find(
        state=query.state, key=query.key, limit=query.limit, cursor=query.cursor
    )
    return page


TABLE = (
    Operation(
        method="GET", path="/inbox", summary="List accepted messages, oldest first.",
        act=list_arrivals, role="owner", query=InboxQuery, answer=Page[InboxItem],
    ),
)  # fmt: skip
