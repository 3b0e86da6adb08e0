"""Now: tells whether all is well, and what waits for a person."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, time, timedelta
from typing import Any

from tertulia.console.environment import zone
from tertulia.console.page_definition import ConsolePage, PageCall, gather_values

_SHOWN = 20


async def load_now(call: PageCall) -> dict[str, Any]:
    """Load what needs a person, worst first, the figures of today, and the newest sessions."""
    if not call.caller.is_owner:
        values = await gather_values(sessions=call.operate("list_sessions", query={"limit": 10}))
        return {**_nothing(), "sessions": values["sessions"].items}
    today = datetime.combine(call.api.store.now().astimezone(zone()).date(), time(), zone())
    limit = {"limit": _SHOWN}
    values = await gather_values(
        unknown=call.operate("list_deliveries", query={"state": "unknown", **limit}),
        dead=call.operate("list_deliveries", query={"state": "dead", **limit}),
        unanswered=call.operate("list_arrivals", query={"state": "dead", **limit}),
        waiting=call.operate("list_arrivals", query={"state": "waiting", **limit}),
        taken=call.operate("list_arrivals", query={"state": "taken", **limit}),
        pairings=call.operate("list_pairings"),
        usage=call.operate("sum_usage", query={"by": "day", "since": today.isoformat()}),
        sessions=call.operate("list_sessions", query={"limit": 10}),
    )
    late = call.api.store.now() - timedelta(minutes=2)
    return {
        "unknown": values["unknown"],
        "dead": values["dead"],
        "unanswered": values["unanswered"],
        "late": [item for item in values["waiting"].items if item.received_at < late][:1],
        "waiting": values["waiting"],
        "taken": values["taken"],
        "pairings": values["pairings"].items,
        "today": sum_today(list(values["usage"].sums.values())),
        "sessions": values["sessions"].items,
    }


def _nothing() -> dict[str, Any]:
    return dict.fromkeys(
        ("unknown", "dead", "unanswered", "late", "waiting", "taken", "pairings", "today")
    )


def sum_today(sums: Sequence[Any]) -> dict[str, Any]:
    """Return tokens and cost of the usage since midnight; a cost of None is unknown."""
    costs = [usage.cost_usd for usage in sums if usage.cost_usd is not None]
    return {
        "tokens": sum(usage.total for usage in sums),
        "cost": sum(costs) if costs or not sums else None,
        "is_partial": any(usage.cost_status == "unknown" for usage in sums),
    }


PAGES = (
    ConsolePage(
        path="/", name="now", title="Now", section="now", load=load_now,
        live=("live_now", "live_figures"),
    ),
)  # fmt: skip
