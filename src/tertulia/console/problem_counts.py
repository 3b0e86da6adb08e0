"""The numbers in the navigation: how much waits for the owner, on which page."""

from __future__ import annotations

from typing import Final

from tertulia.console.environment import load_macro
from tertulia.console.page_definition import PageCall

_MOST: Final = 1000  # more are not counted


async def load_counts(call: PageCall) -> dict[str, str]:
    """Return the HTML of each number by the id of its element; nothing for others."""
    if not call.caller.is_owner:
        return {}
    counts = await call.operate("count_problems")
    settled_by_hand = (counts.unknown, counts.undelivered, counts.unanswered)
    count_html = load_macro("_count.html", "count_html")
    return {
        "count_deliveries": count_html(sum(settled_by_hand), max(settled_by_hand) >= _MOST).strip(),
        "count_people": count_html(counts.pairings, False).strip(),
    }
