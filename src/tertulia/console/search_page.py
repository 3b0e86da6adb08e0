"""Search: tells where something was said."""

from __future__ import annotations

from typing import Any, Final

from tertulia.console.page_definition import ConsolePage, PageCall
from tertulia.errors import NotFound
from tertulia.platforms.registry import PLATFORMS

_LIMIT: Final = 20


async def load_search(call: PageCall) -> dict[str, Any]:
    """Load the hits of a search, each with its session."""
    words = call.query.get("q", "").strip()
    filters = call.choose("platform", "person", "cursor")
    hits, next_cursor = [], None
    if words:
        page = await call.operate("search_messages", query={"q": words, "limit": _LIMIT, **filters})
        next_cursor = page.next
        for hit in page.items:
            try:
                session = await call.operate("get_session", path={"id": hit.session_id})
            except NotFound:  # it was deleted a moment ago
                continue
            hits.append((hit, session))
    return {
        "q": words,
        "hits": hits,
        "next": next_cursor,
        "filters": {name: filters.get(name, "") for name in ("platform", "person")},
        "platforms": sorted(PLATFORMS),
    }


PAGES = (
    ConsolePage(path="/search", name="search", title="Search", section="search", load=load_search),
)
