"""Sessions and what belongs to one of them: transcript, reasons, revisions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from tertulia.console.page_definition import ConsolePage, PageCall, gather_values
from tertulia.console.transcript_entries import show_entries
from tertulia.core.message import ASSISTANT
from tertulia.core.session import STATES, Session
from tertulia.http.auth import API
from tertulia.platforms.registry import PLATFORMS
from tertulia.records.turns.newest import NewestTurn

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
    "stop": "The answer was to be stopped", "retry": "The last message was to be answered again",
}  # fmt: skip


class TurnStep(msgspec.Struct, frozen=True, kw_only=True):
    """How far a turn has come: the number of its model call, and the tools called before."""

    number: int
    calls: str


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
    session = await call.operate("get_session", path=call.path)
    values = await gather_values(
        window=call.operate("read_transcript", path=call.path, query=query),
        view=call.operate("read_turn", path=call.path),
    )
    window, turn = values["window"], values["view"].turn
    full = call.query.get("full", "")
    return {
        "turn": turn,
        "step": None if turn is None or not turn.is_running else _step(window.items, turn.number),
        "can_retry": _can_retry(session, turn),
        "session": session,
        "window": window,
        "entries": await show_entries(
            window.items,
            full=int(full) if re.fullmatch(r"[0-9]{1,18}", full) else None,
            person=session.origin.user_name,
            session=session.id,
            is_raw=bool(call.query.get("raw")),
        ),
        "is_raw": bool(call.query.get("raw")),
        "total": window.before + len(window.items) + window.after,
        "tab": "transcript",
        "edited": call.query.get("edit", ""),
    }


def _step(entries: Sequence[Any], turn: int) -> TurnStep:
    """Return how far a turn has come, from its messages in the window."""
    answers = [entry for entry in entries if entry.turn == turn and entry.role == ASSISTANT]
    calls = answers[-1].body.get("tool_calls") if answers else None
    functions = [
        each.get("function")
        for each in (calls if isinstance(calls, list) else ())
        if isinstance(each, Mapping)
    ]
    names = [str(each.get("name")) for each in functions if isinstance(each, Mapping)]
    return TurnStep(number=len(answers) + 1, calls=", ".join(names))


def _can_retry(session: Session, turn: NewestTurn | None) -> bool:
    """Return whether its last message can be answered again now."""
    is_current = session.ended_at is None and session.origin.platform != API
    return is_current and turn is not None and not turn.can_be_stopped


async def load_why(call: PageCall) -> dict[str, Any]:
    """Load why a session began, goes on or ended."""
    why = await call.operate(
        "read_why", path=call.path, query={"limit": 100, **call.choose("cursor")}
    )
    return {"why": why, "session": why.session, "tab": "why", "kinds": KINDS}


async def load_revisions(call: PageCall) -> dict[str, Any]:
    """Load the revisions of a transcript, and what the chosen one showed."""
    session = await call.operate("get_session", path=call.path)
    page = await call.operate("list_revisions", path=call.path, query={"limit": 200})
    revisions = page.items
    number = call.query.get("n", "")
    current = next((each for each in revisions if each.is_current), None)
    chosen = next((each for each in revisions if str(each.number) == number), current)
    entries: list[Any] = []
    if chosen is not None:
        query = {"newest": _WINDOW, "revision": chosen.number}
        window = await call.operate("read_transcript", path=call.path, query=query)
        entries = await show_entries(
            window.items, person=session.origin.user_name, session=session.id
        )
    return {
        "session": session,
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
        load=load_transcript, live=("live_head", "live_acts", "live_transcript"),
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
