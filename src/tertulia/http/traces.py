"""The way of one message: received, waited, turn, model calls, deliveries, with times."""

from __future__ import annotations

from tertulia.http.routing import ApiCall, Operation
from tertulia.records.queues.trace import MessageTrace


async def trace_message(call: ApiCall) -> MessageTrace:
    return await call.api.store.traces.get(call.number("message", "GET /inbox"))


TABLE = (
    Operation(
        method="GET", path="/messages/{id}", has_number=True,
        act=trace_message, role="owner", answer=MessageTrace,
        summary="Tell what became of an accepted message: turn, model calls and deliveries.",
    ),
)  # fmt: skip
