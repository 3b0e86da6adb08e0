"""Sessions and what belongs to one of them: transcript, reasons, prompt, revisions."""

from __future__ import annotations

from typing import Any, Final

from tertulia.console.page_definition import ConsolePage, PageCall
from tertulia.console.transcript_entries import show_entries
from tertulia.core.session import STATES
from tertulia.platforms.registry import PLATFORMS

_WINDOW: Final = 60


async def load_sessions(call: PageCall) -> dict[str, Any]:
    """Load a list of sessions, filtered as the address says."""
    filters = call.choose("platform", "state", "text", "person", "key", "cursor")
    page = await call.run("list_sessions", query={"limit": 50, **filters})
    return {
        "sessions": page.items,
        "next": page.next,
        "filters": {
            name: filters.get(name, "") for name in ("platform", "state", "text", "person", "key")
        },
        "is_filtered": bool(filters),
        "states": STATES,
        "platforms": sorted(PLATFORMS),
    }


async def load_transcript(call: PageCall) -> dict[str, Any]:
    """Load a window of a transcript."""
    session = await call.run("get_session", path=call.path)
    page = await call.run("read_transcript", path=call.path, query={"newest": _WINDOW})
    full = call.query.get("full", "")
    entries = await show_entries(page.items, full=int(full) if full.isdigit() else None)
    return {"session": session, "entries": entries, "tab": "transcript"}


PAGES = (
    ConsolePage(
        path="/sessions", name="sessions", title="Sessions", section="sessions",
        load=load_sessions, rows="sessions", row_template="_session_row.html",
    ),
    ConsolePage(
        path="/sessions/{id}", name="transcript", title="Transcript", section="sessions",
        load=load_transcript, live=("live_head", "live_transcript"),
    ),
)  # fmt: skip
