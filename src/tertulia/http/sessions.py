"""Sessions, transcripts, search and usage."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tertulia.core.history.formats import (
    Format,
    Timestamps,
)
from tertulia.core.message import Message
from tertulia.core.session import Page, Session, State
from tertulia.core.usage import Usage
from tertulia.errors import AccessDenied
from tertulia.http.auth import (
    API,
    WEB,
)
from tertulia.http.routing import (
    ApiCall,
    Operation,
)
from tertulia.records.search import Hit
from tertulia.records.usage import By

Platform = Literal["api", "web"]
Count = Annotated[int, Meta(ge=1, le=1000)]
Place = Annotated[int, Meta(ge=0, le=2**53)]
Cursor = Annotated[str, Meta(max_length=400)]
Text = Annotated[str, Meta(max_length=4000)]


class SessionQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which sessions. `key` and `person` are for the owner; others see their own on `platform`."""

    platform: Text | None = None
    key: Text | None = None
    person: Text | None = None
    state: State = "all"
    text: Text | None = None
    limit: Count = 50
    cursor: Cursor | None = None


class Rename(msgspec.Struct, frozen=True):
    title: Text | None


class End(msgspec.Struct, frozen=True):
    reason: Annotated[str, Meta(min_length=1, max_length=100)] = "ended over HTTP"


class Fork(msgspec.Struct, frozen=True):
    at: Place | None = None


class Explanation(msgspec.Struct, frozen=True):
    text: str


class TranscriptEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A message with its place."""

    seq: int
    turn: int
    role: str
    kind: str | None
    at: datetime
    author: Any
    body: dict[str, Any]


class TranscriptQuery(msgspec.Struct, frozen=True):
    newest: Count = 200


class TranscriptPage(msgspec.Struct, frozen=True):
    items: tuple[TranscriptEntry, ...]


class HistoryQuery(msgspec.Struct, frozen=True, kw_only=True):
    max_messages: Annotated[int, Meta(ge=1, le=10_000)] = 500
    max_tokens: Annotated[int, Meta(ge=1, le=10_000_000)] | None = None
    timestamps: Timestamps = "none"
    format: Format = "openai"


class History(msgspec.Struct, frozen=True):
    items: tuple[dict[str, Any], ...]


class SearchQuery(msgspec.Struct, frozen=True, kw_only=True):
    q: Text
    platform: Text | None = None
    person: Text | None = None
    key: Text | None = None
    limit: Annotated[int, Meta(ge=1, le=200)] = 20
    cursor: Cursor | None = None


class UsageQuery(msgspec.Struct, frozen=True, kw_only=True):
    by: By = "day"
    since: datetime | None = None
    until: datetime | None = None


class Sums(msgspec.Struct, frozen=True):
    by: By
    sums: dict[str, Usage]


async def list_sessions(call: ApiCall) -> Page[Session]:
    given: SessionQuery = call.query
    filters = {
        "state": given.state, "text": given.text, "limit": given.limit, "cursor": given.cursor,
    }  # fmt: skip
    if call.caller.is_owner:
        found: Page[Session] = await call.api.store.sessions.find(
            platform=given.platform, key=given.key, person=given.person, **filters
        )
        return found
    _only_owner(given.key, given.person)
    return await call.eyes.own(_own_platform(given.platform)).find(**filters)


async def get_session(call: ApiCall) -> Session:
    return await call.eyes.session(call.path["id"])


async def rename_session(call: ApiCall) -> Session:
    session = await call.eyes.session(call.path["id"])
    found: Session = await call.api.store.sessions.rename(session.id, call.body.title)
    return found


async def end_session(call: ApiCall) -> Session:
    session = await call.eyes.session(call.path["id"])
    found: Session = await call.api.store.sessions.end(session.id, call.body.reason)
    return found


async def reset_session(call: ApiCall) -> Session:
    session = await call.eyes.session(call.path["id"])
    found: Session = await call.api.store.sessions.reset(session.key)
    return found


async def resume_session(call: ApiCall) -> Session:
    session = await call.eyes.session(call.path["id"])
    found: Session = await call.api.store.sessions.switch(session.key, session.id)
    return found


async def fork_session(call: ApiCall) -> Session:
    session = await call.eyes.session(call.path["id"])
    found: Session = await call.api.store.sessions.fork(session.id, call.body.at)
    return found


async def delete_session(call: ApiCall) -> None:
    session = await call.eyes.session(call.path["id"])
    await call.api.store.sessions.delete(session.id)


async def explain_session(call: ApiCall) -> Explanation:
    session = await call.eyes.session(call.path["id"])
    return Explanation(await call.api.store.sessions.explain(session.id))


async def read_transcript(call: ApiCall) -> TranscriptPage:
    transcript = await call.eyes.transcript(call.path["id"])
    return TranscriptPage(tuple(map(entry, await transcript.entries(newest=call.query.newest))))


async def read_history(call: ApiCall) -> History:
    transcript = await call.eyes.transcript(call.path["id"])
    given: HistoryQuery = call.query
    found = await transcript.history(
        given.max_messages, given.max_tokens, given.timestamps, given.format
    )
    return History(tuple(found))


async def search_messages(call: ApiCall) -> Page[Hit]:
    given: SearchQuery = call.query
    if call.caller.is_owner:
        found: Page[Hit] = await call.api.store.search(
            given.q,
            platform=given.platform,
            person=given.person,
            key=given.key,
            limit=given.limit,
            cursor=given.cursor,
        )
        return found
    _only_owner(given.key, given.person)
    own = call.eyes.own(_own_platform(given.platform))
    return await own.search(given.q, limit=given.limit, cursor=given.cursor)


async def sum_usage(call: ApiCall) -> Sums:
    given: UsageQuery = call.query
    if not call.caller.is_owner and given.by != "person":
        raise AccessDenied("Only the owner sees what others used.", hint="Ask for by=person.")
    sums = await call.api.store.usage.sum(given.by, given.since, given.until)
    if not call.caller.is_owner:
        people = call.api.store.people
        own = {people.person_of(call.caller.source(platform)) for platform in (API, WEB)}
        sums = {name: usage for name, usage in sums.items() if name in own}
    return Sums(given.by, sums)


def entry(message: Message) -> TranscriptEntry:
    return TranscriptEntry(
        seq=message.seq,
        turn=message.turn,
        role=message.role,
        kind=message.kind,
        at=message.at,
        author=None if message.author is None else msgspec.json.decode(message.author),
        body=message.body,
    )


def _only_owner(*given: str | None) -> None:
    if any(one is not None for one in given):
        raise AccessDenied(
            "Only the owner may ask for a person or a key.", hint="Leave both out: you see yours."
        )


def _own_platform(given: str | None) -> str:
    if given not in (None, API, WEB):
        raise AccessDenied(
            f"You have not written on {given[:40]}.", hint=f"Ask for {API} or {WEB}."
        )
    return given or API


_ONE = "/sessions/{id}"

TABLE = (
    Operation(
        method="GET", path="/sessions", summary="Sessions, the newest activity first.",
        act=list_sessions, query=SessionQuery, answer=Page[Session],
    ),
    Operation(
        method="GET", path=_ONE, summary="One session.", act=get_session, answer=Session,
    ),
    Operation(
        method="PATCH", path=_ONE, summary="Give a session a title, or take it away.",
        act=rename_session, body=Rename, answer=Session,
    ),
    Operation(
        method="DELETE", path=_ONE, summary="Remove a session with everything it holds.",
        act=delete_session,
    ),
    Operation(
        method="POST", path=_ONE + "/end", summary="End a session.",
        act=end_session, body=End, answer=Session,
    ),
    Operation(
        method="POST", path=_ONE + "/reset", answer=Session, act=reset_session,
        summary="End the current session of the same conversation, and begin a new one.",
    ),
    Operation(
        method="POST", path=_ONE + "/resume", answer=Session, act=resume_session,
        summary="Make an earlier session the current one of its conversation.",
    ),
    Operation(
        method="POST", path=_ONE + "/fork", body=Fork, answer=Session, act=fork_session,
        summary="A new current session with the same past, up to a message.",
    ),
    Operation(
        method="GET", path=_ONE + "/explain", answer=Explanation, act=explain_session,
        summary="Why the session began, went on and ended.",
    ),
    Operation(
        method="GET", path=_ONE + "/transcript", summary="The newest messages that are seen.",
        act=read_transcript, query=TranscriptQuery, answer=TranscriptPage,
    ),
    Operation(
        method="GET", path=_ONE + "/history", summary="What a model would be shown.",
        act=read_history, query=HistoryQuery, answer=History,
    ),
    Operation(
        method="GET", path="/search", summary="Messages that hold all words, best first.",
        act=search_messages, query=SearchQuery, answer=Page[Hit],
    ),
    Operation(
        method="GET", path="/usage", summary="Tokens and cost by group; yours, or everybody's.",
        act=sum_usage, query=UsageQuery, answer=Sums,
    ),
)  # fmt: skip
