"""Deliveries: what is stuck on its way to somebody, or waits to be answered."""

from __future__ import annotations

from typing import Any

from tertulia.console.page_definition import ConsolePage, PageCall, gather_values
from tertulia.records.queues.outbox import DELIVERY_STATES

_STATES = ("unknown", "dead", "waiting", "sending")


async def load_deliveries(call: PageCall) -> dict[str, Any]:
    """Load the deliveries in one state, and how many there are in each that needs a person."""
    state = call.query.get("state", "")
    shown = [state] if state in DELIVERY_STATES else list(_STATES)
    pages = await gather_values(
        **{
            name: call.operate("list_deliveries", query={"state": name, "limit": 50})
            for name in shown
        }
    )
    arrivals = await gather_values(
        dead=call.operate("list_arrivals", query={"state": "dead", "limit": 20}),
        waiting=call.operate("list_arrivals", query={"state": "waiting", "limit": 20}),
        taken=call.operate("list_arrivals", query={"state": "taken", "limit": 20}),
    )
    return {
        "deliveries": [item for page in pages.values() for item in page.items],
        "state": state if state in DELIVERY_STATES else "",
        "states": DELIVERY_STATES,
        "arrivals": [item for page in arrivals.values() for item in page.items],
        "is_more": any(page.next for page in pages.values()),
    }


PAGES = (
    ConsolePage(
        path="/deliveries", name="deliveries", title="Deliveries", section="deliveries",
        load=load_deliveries, role="owner", rows="deliveries", row_template="_delivery_row.html",
        live=("live_arrivals",),
    ),
)  # fmt: skip
