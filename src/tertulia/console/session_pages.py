"""Sessions and what belongs to one of them: transcript, reasons, revisions."""

from __future__ import annotations

from typing import Any, Final

from tertulia.console.page_definition import ConsolePage, PageCall, gather_values
from tertulia.console.transcript_entries import show_entries
from tertulia.core.session import STATES
from tertulia.platforms.registry import PLATFORMS

_WINDOW: Final = 60
# Names of calls that make a revision, as people say it.
MADE_BY: Final = {
    "undo": "undo", "redo": "redo", "edit": "a message was edited", "restore": "restored",
    "remove": "a message was removed", "compact": "older messages summed up", "clear": "cleared",
    "rewrite": "rewritten", "keep_recent": "older messages cut", "fork": "forked", "pop": "removed",
}  # fmt: skip
# Kinds of events, as people say it.
KINDS: Final = {
    "began": "It began", "ended": "It ended", "resumed": "It was resumed", "renamed": "Renamed",
    "undo": "Messages were taken back", "redo": "Messages were brought back",
    "edit": "A message was edited", "remove": "A message was removed", "restore": "Restored",
    "compact": "Older messages were summed up", "forked": "Forked",
}  # fmt: skip


async def load_sessions(call: PageCall) -> dict[str, Any]:
    """Load a list of sessions, filtered as the address says."""
    filters = call.choose("platform", "state", "text", "person", "key", "cursor")
    page = await call.operate("list_sessions", query={"limit": 50, "words": "true", **filters})
    return {
        "sessions": page.items,
        "words": page.words,
        "next": page.next,
        "filters": {
            name: filters.get(name, "") for name in ("platform", "state", "text", "person", "key")
        },
        "is_filtered": bool(filters),
        "states": STATES,
        "platforms": sorted(PLATFORMS),
    }


async def load_transcript(call: PageCall) -> dict[str, Any]:
    """Load a window of a transcript: the newest messages, or those that the address names."""
    query = {"newest": _WINDOW, **call.choose("before", "after", "around", "revision")}
    values = await gather_values(
        session=call.operate("get_session", path=call.path),
        window=call.operate("read_transcript", path=call.path, query=query),
    )
    window = values["window"]
    full = call.query.get("full", "")
    return {
        "session": values["session"],
        "window": window,
        "entries": await show_entries(
            window.items,
            full=int(full) if full.isdigit() else None,
            person=values["session"].origin.user_name,
        ),
        "total": window.before + len(window.items) + window.after,
        "tab": "transcript",
        "edited": call.query.get("edit", ""),
    }


async def load_why(call: PageCall) -> dict[str, Any]:
    """Load why a session began, goes on or ended."""
    why = await call.operate(
        "read_why", path=call.path, query={"limit": 100, **call.choose("cursor")}
    )
    return {"why": why, "session": why.session, "tab": "why", "kinds": KINDS, "words": {}}


async def load_revisions(call: PageCall) -> dict[str, Any]:
    """Load the revisions of a transcript, and what the chosen one showed."""
    values = await gather_values(
        session=call.operate("get_session", path=call.path),
        revisions=call.operate("list_revisions", path=call.path, query={"limit": 200}),
    )
    revisions = values["revisions"].items
    number = call.query.get("n", "")
    current = next((each for each in revisions if each.is_current), None)
    chosen = next((each for each in revisions if str(each.number) == number), current)
    entries: list[Any] = []
    if chosen is not None:
        query = {"newest": _WINDOW, "revision": chosen.number}
        window = await call.operate("read_transcript", path=call.path, query=query)
        person = values["session"].origin.user_name
        entries = await show_entries(window.items, person=person)
    return {
        "session": values["session"],
        "revisions": revisions,
        "chosen": chosen,
        "entries": entries,
        "made_by": MADE_BY,
        "tab": "revisions",
    }


PAGES = (
    ConsolePage(
        path="/sessions", name="sessions", title="Sessions", section="sessions",
        load=load_sessions, rows="sessions", row_template="_session_row.html",
    ),
    ConsolePage(
        path="/sessions/{id}", name="transcript", title="Transcript", section="sessions",
        load=load_transcript, live=("live_head", "live_transcript"),
    ),
    ConsolePage(
        path="/sessions/{id}/why", name="why", title="Why", section="sessions", load=load_why,
        part="why",
    ),
    ConsolePage(
        path="/sessions/{id}/revisions", name="revisions", title="Revisions", section="sessions",
        load=load_revisions, part="revisions",
    ),
)  # fmt: skip
