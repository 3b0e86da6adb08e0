"""Deliveries: what is stuck on its way to somebody, or waits to be answered."""

from __future__ import annotations

from typing import Any, Final

from tertulia.console.page_definition import ConsolePage, PageCall, gather_values
from tertulia.records.queues.outbox import DELIVERY_STATES

_STATES: Final = ("unknown", "dead", "waiting", "sending")
_LIMIT: Final = 50


async def load_deliveries(call: PageCall) -> dict[str, Any]:
    """Load how much is stuck, by problem, and the newest deliveries and messages of it."""
    state = call.query.get("state", "")
    chosen = state if state in DELIVERY_STATES else ""
    filters = call.choose("platform", "problem")
    query = {"order": "newest", "limit": _LIMIT, **filters}
    overview = await call.operate("review_queues")
    pages = await gather_values(
        **{
            name: call.operate("list_deliveries", query={**query, "state": name})
            for name in ([chosen] if chosen else _STATES)
        }
    )
    arrivals = [] if filters or chosen else await _arrivals(call)
    counts = {(each.queue, each.state): each for each in overview.counts}
    return {
        "deliveries": [item for page in pages.values() for item in page.items][: 2 * _LIMIT],
        "state": chosen,
        "filters": {name: filters.get(name, "") for name in ("platform", "problem")},
        "is_filtered": bool(filters or chosen),
        "states": DELIVERY_STATES,
        "counts": counts,
        "groups": [
            each for each in overview.groups if each.state in ("unknown", "dead") and each.count > 1
        ],
        "arrivals": arrivals,
        "is_more": any(page.next for page in pages.values()),
    }


async def load_message(call: PageCall) -> dict[str, Any]:
    """Load the way of one message, from its receipt to its delivery."""
    return {"trace": await call.operate("trace_message", path=call.path)}


async def _arrivals(call: PageCall) -> list[Any]:
    pages = await gather_values(
        **{
            name: call.operate(
                "list_arrivals", query={"state": name, "order": "newest", "limit": 20}
            )
            for name in ("dead", "waiting", "taken")
        }
    )
    return [item for page in pages.values() for item in page.items]


PAGES = (
    ConsolePage(
        path="/deliveries", name="deliveries", title="Deliveries", section="deliveries",
        load=load_deliveries, role="owner", rows="deliveries", row_template="_delivery_row.html",
        live=("live_counts", "live_groups", "live_arrivals"),
    ),
    ConsolePage(
        path="/messages/{id}", name="message", title="Message", section="deliveries",
        load=load_message, role="owner", live=("live_message",),
    ),
)  # fmt: skip
