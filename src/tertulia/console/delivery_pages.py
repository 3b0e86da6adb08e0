"""Deliveries: what is stuck on its way to somebody, or waits to be answered."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import urlencode

from tertulia.console.page_definition import CONSOLE, ConsolePage, PageCall
from tertulia.core.keys import person_of
from tertulia.core.session import Session
from tertulia.records.queues.outbox import DELIVERY_STATES

_LIMIT: Final = 50
_ARRIVALS: Final = 20
# The states, as people say it.
_WORDS: Final = {
    "waiting": "waiting", "sending": "in progress", "sent": "sent", "unknown": "unknown",
    "dead": "dead",
}  # fmt: skip


async def load_deliveries(call: PageCall) -> dict[str, Any]:
    """Load how much is stuck, by problem, and the newest deliveries and messages of it."""
    state = call.query.get("state", "")
    chosen = state if state in DELIVERY_STATES else ""
    filters = call.choose("platform", "problem") if chosen else {}
    overview = await call.operate("review_queues")
    counts = {(each.queue, each.state): each for each in overview.counts}
    arrivals: list[Any] = []
    older = ""
    if chosen:
        query = {"order": "newest", "limit": _LIMIT, "state": chosen, **filters}
        page = await call.operate("list_deliveries", query={**query, **call.choose("cursor")})
        deliveries, is_more = page.items, page.next is not None
        if page.next is not None:
            fields = {"state": chosen, **filters, "cursor": page.next}
            older = f"{CONSOLE}/deliveries?{urlencode(fields)}"
    else:
        entries = await call.operate("list_open", query={"limit": _LIMIT})
        deliveries = entries.deliveries[: 2 * _LIMIT]
        for state in ("dead", "waiting", "taken"):
            arrivals += [each for each in entries.messages if each.state == state][:_ARRIVALS]
        open_count = sum(each.count for (queue, _), each in counts.items() if queue == "outbox")
        is_more = open_count > len(deliveries)
    return {
        "deliveries": deliveries,
        "chats": await load_chats(call, deliveries),
        "state": chosen,
        "filters": {name: filters.get(name, "") for name in ("platform", "problem")},
        "is_filtered": bool(filters or chosen),
        "states": DELIVERY_STATES,
        "counts": counts,
        "groups": [
            each for each in overview.groups if each.state in ("unknown", "dead") and each.count > 1
        ],
        "arrivals": arrivals,
        "is_more": is_more,
        "older": older,
        "words": _WORDS,
    }


async def load_chats(call: PageCall, deliveries: Iterable[Any]) -> dict[str, Session]:
    """Load the sessions of deliveries, by id: they tell whose they are."""
    ids = " ".join({each.session_id: None for each in deliveries if each.session_id})
    if not ids:
        return {}
    page = await call.operate("list_sessions", query={"ids": ids})
    return {session.id: session for session in page.items}


async def load_message(call: PageCall) -> dict[str, Any]:
    """Load the way of one message, from its receipt to its delivery."""
    trace = await call.operate("trace_message", path=call.path)
    person = person_of(trace.message.source)
    people = await call.operate("list_people", query={"ids": person}) if person else None
    return {"trace": trace, "sender": next(iter(people.items), None) if people else None}


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
