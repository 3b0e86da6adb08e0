"""Deliveries: list them, and settle by hand those whose outcome is unknown or dead."""

from __future__ import annotations

from typing import Literal

import msgspec

from tertulia.core import cursor as cursors
from tertulia.core.session import Page
from tertulia.errors import IllegalMove, NotFound
from tertulia.http.parameters import Count, Cursor, Text
from tertulia.http.routing import ApiCall, Operation
from tertulia.records.queues.outbox import Delivery, DeliveryState


class DeliveryQuery(msgspec.Struct, frozen=True, kw_only=True):
    state: DeliveryState | None = None
    session_id: Text | None = None
    limit: Count = 50
    cursor: Cursor | None = None


class SettleRequest(msgspec.Struct, frozen=True):
    """The outcome of a delivery: it was sent, is to be sent again (`retry`), or is given up."""

    outcome: Literal["sent", "retry", "dead"]


async def list_deliveries(call: ApiCall) -> Page[Delivery]:
    query: DeliveryQuery = call.query
    return await call.api.store.outbox.find(
        state=query.state, session_id=query.session_id, limit=query.limit, cursor=query.cursor
    )


async def settle_delivery(call: ApiCall) -> Delivery:
    delivery = await _require_delivery(call)
    if delivery.state not in ("unknown", "dead"):
        raise IllegalMove(
            f"The delivery is {delivery.state}.",
            hint="Only a delivery that is unknown or dead can be settled by hand.",
        )
    outbox = call.api.store.outbox
    body: SettleRequest = call.body
    if body.outcome == "sent":
        return await outbox.done(delivery)
    return await outbox.failed(delivery, "settled by hand", outcome=body.outcome)


async def _require_delivery(call: ApiCall) -> Delivery:
    number = call.number("delivery", "GET /deliveries")
    page = await call.api.store.outbox.find(limit=1, cursor=cursors.encode(number - 1))
    for delivery in page.items:
        if delivery.id == number:
            return delivery
    raise NotFound(f"There is no delivery {number}.")


TABLE = (
    Operation(
        method="GET", path="/deliveries", summary="List deliveries, oldest first.",
        act=list_deliveries, role="owner", query=DeliveryQuery, answer=Page[Delivery],
    ),
    Operation(
        method="POST", path="/deliveries/{id}/settle", act=settle_delivery, role="owner",
        summary="Set the outcome of a delivery that is unknown or dead, or send it again.",
        body=SettleRequest, answer=Delivery,
    ),
)  # fmt: skip
