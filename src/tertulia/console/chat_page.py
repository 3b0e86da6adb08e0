"""The chat of the web platform, as a page: to see whether it works, and to use it."""

from __future__ import annotations

from typing import Any, Final

from tertulia.console.asset_files import assets
from tertulia.console.chat_notes import choose_notes, merge_notes, show_notes
from tertulia.console.page_definition import CONSOLE, ConsolePage, PageCall
from tertulia.console.transcript_entries import TranscriptItem, show_entries
from tertulia.core.session import Session
from tertulia.errors import NotFound
from tertulia.gateway.commands import TABLE as COMMANDS
from tertulia.http.auth import WEB
from tertulia.http.event_stream import EventStream
from tertulia.records.people import ROLES

CHAT: Final = "console"
_WINDOW: Final = 60
_DELIVERIES: Final = 200  # among which notes are looked for; answers are deliveries too
_SHARE: Final = 0.7  # of a request: Base64 in a form needs nearly half as much again


async def load_chat(call: PageCall) -> dict[str, Any]:
    """Load the newest messages of this person's chat."""
    entries: list[TranscriptItem] = []
    session = None
    has_messages = False
    if call.api.web is not None and call.caller.role != "guest":
        page = await call.operate("list_sessions", query=_own_sessions(call))
        chats = [item for item in page.items if item.origin.chat_id == CHAT]
        session = chats[0] if chats else None
        entries, has_messages = await _load_entries(call, session)
    rank = ROLES.index(call.caller.role)
    return {
        "entries": entries,
        "session": session,
        "has_messages": has_messages,
        "has_web": call.api.web is not None,
        "is_live_chat": call.api.web is not None,
        "reads": call.caller.role != "guest",
        "commands": [each for each in COMMANDS if ROLES.index(each.role) >= rank],
        "chat": CHAT,
        "max_bytes": _max_bytes(call),
        "chat_css": f"{CONSOLE}/assets/{assets()['chat_css'].name}",
        "chat_js": f"{CONSOLE}/assets/{assets()['chat'].name}",
    }


async def _load_entries(
    call: PageCall, session: Session | None
) -> tuple[list[TranscriptItem], bool]:
    """Load the newest entries of the chat; return them, and whether a message is among them."""
    entries: list[TranscriptItem] = []
    since = None
    if session is not None:
        window = await call.operate(
            "read_transcript", path={"id": session.id}, query={"newest": _WINDOW}
        )
        entries = await show_entries(window.items, person="You", session=session.id)
        since = entries[0].at if entries and window.before else None
    newest = await call.operate(
        "list_chat_deliveries", path={"chat": CHAT}, query={"limit": _DELIVERIES}
    )
    session_id = None if session is None else session.id
    notes = await show_notes(choose_notes(newest.items, session_id, since=since))
    return merge_notes(entries, notes), bool(entries)


def _max_bytes(call: PageCall) -> int:
    """Return how many bytes of files a message may have: they are sent encoded, in one request."""
    source = call.own_source(WEB, CHAT)
    of_file = call.api.gateway.pipeline.media_fetcher.max_bytes(source)
    return min(of_file, round(call.api.settings.body_limit(call.caller.role) * _SHARE))


def _own_sessions(call: PageCall) -> dict[str, Any]:
    query: dict[str, Any] = {"platform": WEB, "state": "current", "limit": 50}
    if call.caller.is_owner:
        query["person"] = call.caller.person(WEB)
    return query


async def read_chat_events(call: PageCall) -> EventStream:
    """Return the stream of the events of this person's chat."""
    if call.api.web is None:
        raise NotFound("This gateway has no web platform.", hint="Add [platforms.web].")
    stream: EventStream = await call.operate("read_events", path={"chat": CHAT})
    return stream


PAGES = (
    ConsolePage(
        path="/chat", name="chat", title="Chat", section="chat", load=load_chat, role="guest",
        part="chat",
    ),
)  # fmt: skip
