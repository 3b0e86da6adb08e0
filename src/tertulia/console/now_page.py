"""Now: tells whether all is well, and what waits for a person."""

from __future__ import annotations

import hashlib
from datetime import datetime, time
from typing import Any, Final

import msgspec

from tertulia.console.delivery_pages import load_chats
from tertulia.console.environment import zone
from tertulia.console.page_definition import ConsolePage, PageCall, gather_values
from tertulia.errors import NotFound

_MAX_CARDS: Final = 20


class NeedCard(msgspec.Struct, frozen=True, kw_only=True):
    """Something that needs a person, with the delivery or message if it is a single one."""

    need: Any
    delivery: Any = None
    message: Any = None

    @property
    def id(self) -> str:
        """Tells the cards apart: a card that moves keeps its buttons and the focus on them."""
        need = self.need
        if self.delivery is not None or self.message is not None:
            return f"{need.kind}-{need.queue}-{need.id}"
        parts = (need.kind, need.queue, need.platform, need.subject, need.problem, need.since)
        return hashlib.blake2b(repr(parts).encode("utf-8", "replace"), digest_size=8).hexdigest()


async def load_now(call: PageCall) -> dict[str, Any]:
    """Load what needs a person, worst first, the figures of today, and the newest sessions."""
    sessions = call.operate("list_sessions", query={"limit": 10, "words": "true"})
    if not call.caller.is_owner:
        page = await sessions
        return {
            "cards": [], "chats": {}, "overview": None, "left": 0, "sessions": page.items,
            "words": page.words,
        }  # fmt: skip
    midnight = datetime.combine(call.api.store.now().astimezone(zone()).date(), time(), zone())
    values = await gather_values(
        overview=call.operate(
            "read_now", query={"since": midnight.isoformat(), **call.choose("look")}
        ),
        sessions=sessions,
    )
    overview = values["overview"]
    needs = overview.needs
    cards = [await _card(call, need) for need in needs[:_MAX_CARDS]]
    chats = await load_chats(call, [card.delivery for card in cards if card.delivery is not None])
    counts = {(each.queue, each.state): each for each in overview.counts}
    return {
        "overview": overview,
        "cards": cards,
        "chats": chats,
        "left": max(0, len(needs) - _MAX_CARDS),
        "waiting": counts.get(("inbox", "waiting")),
        "running": overview.running,
        "sessions": values["sessions"].items,
        "words": values["sessions"].words,
    }


async def _card(call: PageCall, need: Any) -> NeedCard:
    """Return the card of a need; a single delivery or message is shown with its text."""
    if need.id is None or need.count != 1 or need.kind not in ("unknown", "dead", "unanswered"):
        return NeedCard(need=need)
    try:
        if need.queue == "outbox":
            delivery = await call.operate("get_delivery", path={"id": str(need.id)})
            return NeedCard(need=need, delivery=delivery)
        state = "waiting" if need.kind == "unanswered" else "dead"
        page = await call.operate(
            "list_arrivals", query={"state": state, "order": "newest", "limit": 200}
        )
    except NotFound:  # it was settled a moment ago
        return NeedCard(need=need)
    message = next((item for item in page.items if item.id == need.id), None)
    return NeedCard(need=need, message=message)


PAGES = (
    ConsolePage(
        path="/", name="now", title="Now", section="now", load=load_now,
        live=("live_now", "live_figures"), ages=15.0,
    ),
)  # fmt: skip
