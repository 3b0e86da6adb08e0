"""Sessions, their transcripts and histories, search, and usage."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta

from tertulia.core import validate
from tertulia.core.history.account import RowFate
from tertulia.core.history.formats import Format, Timestamps
from tertulia.core.message import Message
from tertulia.core.session import Page, Session, State
from tertulia.core.usage import Usage
from tertulia.errors import AccessDenied
from tertulia.http.auth import API, WEB
from tertulia.http.parameters import MAX_IDS, Count, Cursor, Position, Text
from tertulia.http.routing import SESSION_PATH, ApiCall, Operation
from tertulia.records.search import Hit
from tertulia.records.sessions.last_words import LastWords
from tertulia.records.usage import (
    GROUPINGS,
    DayGrouping,
    DayUsage,
    Grouping,
    UsageReport,
)

_USAGE_LOOK_BACK = timedelta(days=31)


class SessionQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Filters. `key` and `person` are for the owner; others see their own on `platform`.

    With `words` the last words of each session come along. `ids` are ids with spaces between them,
    for the owner: only these sessions are listed, without other filters.
    """

    ids: str = ""
    platform: Text | None = None
    key: Text | None = None
    person: Text | None = None
    state: State = "all"
    text: Text | None = None
    limit: Count = 50
    cursor: Cursor | None = None
    words: bool = False


class SessionList(msgspec.Struct, frozen=True, kw_only=True):
    """Sessions, and the last words of each by its id, if they were asked for."""

    items: tuple[Session, ...]
    next: str | None
    words: dict[str, LastWords] = {}


class RenameRequest(msgspec.Struct, frozen=True):
    title: Text | None


class EndRequest(msgspec.Struct, frozen=True):
    reason: Annotated[str, Meta(min_length=1, max_length=100)] = "ended over HTTP"


class ForkRequest(msgspec.Struct, frozen=True):
    at: Position | None = None
    revision: Position | None = None


class Explanation(msgspec.Struct, frozen=True):
    text: str


class TranscriptEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A message with its position in the transcript."""

    seq: int
    turn: int
    role: str
    kind: str | None
    at: datetime
    author: Any
    body: dict[str, Any]


class TranscriptQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The newest messages, or a window of as many before, after or around a position."""

    newest: Count = 200
    before: Position | None = None
    after: Position | None = None
    around: Position | None = None
    revision: Position | None = None


class TranscriptPage(msgspec.Struct, frozen=True, kw_only=True):
    """Messages, and how many more stand before and after them in this revision.

    `can_redo`: the newest change of the transcript is an undo that can be taken back.
    """

    items: tuple[TranscriptEntry, ...]
    before: int
    after: int
    revision: int
    is_current: bool
    can_redo: bool


class HistoryQuery(msgspec.Struct, frozen=True, kw_only=True):
    max_messages: Annotated[int, Meta(ge=1, le=10_000)] = 500
    max_tokens: Annotated[int, Meta(ge=1, le=10_000_000)] | None = None
    timestamps: Timestamps = "none"
    format: Format = "openai"


class HistoryReply(msgspec.Struct, frozen=True):
    items: tuple[dict[str, Any], ...]


class AccountQuery(HistoryQuery, frozen=True, kw_only=True):
    """The options of a history; `upto`: as of that message. `newest` rows are accounted for."""

    upto: Position | None = None
    newest: Count = 200


class AccountEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the transcript, and what became of it on its way to the model."""

    entry: TranscriptEntry
    fate: RowFate


class HistoryAccountReply(msgspec.Struct, frozen=True, kw_only=True):
    """The rows with their fates, oldest first, and the history that the model gets.

    `before` are how many older rows there are, `tokens` about how many the history has. The model
    gets `context_prompt` before it.
    """

    rows: tuple[AccountEntry, ...]
    before: int
    items: tuple[dict[str, Any], ...]
    tokens: int
    summary: str | None
    context_prompt: str


class SearchQuery(msgspec.Struct, frozen=True, kw_only=True):
    q: Text
    platform: Text | None = None
    person: Text | None = None
    key: Text | None = None
    limit: Annotated[int, Meta(ge=1, le=200)] = 20
    cursor: Cursor | None = None


class UsageQuery(msgspec.Struct, frozen=True, kw_only=True):
    by: Grouping = "day"
    since: datetime | None = None
    until: datetime | None = None


class UsageReportQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Several sums of one period: `by` are groupings with spaces between them.

    With `by_day` the usage of each day by that group comes along. By default the last 31 days.
    """

    by: str = "person"
    by_day: DayGrouping | None = None
    since: datetime | None = None
    until: datetime | None = None


class DayUsageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """By default the last 31 days."""

    by: DayGrouping = "model"
    since: datetime | None = None
    until: datetime | None = None


class DayUsageList(msgspec.Struct, frozen=True, kw_only=True):
    """Usage for each day and group, oldest day first; days are in `zone`."""

    by: DayGrouping
    since: datetime
    zone: str
    items: tuple[DayUsage, ...]


class UsageSums(msgspec.Struct, frozen=True):
    by: Grouping
    sums: dict[str, Usage]


async def list_sessions(call: ApiCall) -> SessionList:
    page = await _find_sessions(call, call.query)
    words: dict[str, LastWords] = {}
    if call.query.words:
        words = await call.api.store.sessions.last_words([session.id for session in page.items])
    return SessionList(items=page.items, next=page.next, words=words)


async def _find_sessions(call: ApiCall, query: SessionQuery) -> Page[Session]:
    filters: dict[str, Any] = {
        "state": query.state, "text": query.text, "limit": query.limit, "cursor": query.cursor,
    }  # fmt: skip
    if call.caller.is_owner and query.ids:
        ids = query.ids.split(" ")[:MAX_IDS]
        return Page(tuple(await call.api.store.sessions.get_many(ids)), None)
    if call.caller.is_owner:
        return await call.api.store.sessions.find(
            platform=query.platform, key=query.key, person=query.person, **filters
        )
    _refuse_owner_filters(query.key or query.ids or None, query.person)
    return await call.scope.own_view(_own_platform(query.platform)).find(**filters)


async def get_session(call: ApiCall) -> Session:
    return await call.session()


async def rename_session(call: ApiCall) -> Session:
    session = await call.session()
    return await call.api.store.sessions.rename(session.id, call.body.title, by=call.actor)


async def end_session(call: ApiCall) -> Session:
    session = await call.session()
    return await call.api.store.sessions.end(session.id, call.body.reason, by=call.actor)


async def reset_session(call: ApiCall) -> Session | None:
    session = await call.session()
    return await call.api.store.sessions.reset(session.key, by=call.actor)


async def resume_session(call: ApiCall) -> Session:
    session = await call.session()
    return await call.api.store.sessions.switch(session.key, session.id, by=call.actor)


async def fork_session(call: ApiCall) -> Session:
    session = await call.session()
    body: ForkRequest = call.body
    return await call.api.store.sessions.fork(
        session.id, body.at, revision=body.revision, by=call.actor
    )


async def delete_session(call: ApiCall) -> None:
    session = await call.session()
    await call.api.store.sessions.delete(session.id)


async def explain_session(call: ApiCall) -> Explanation:
    session = await call.session()
    return Explanation(await call.api.store.sessions.explain(session.id))


async def read_transcript(call: ApiCall) -> TranscriptPage:
    transcript = await call.scope.require_transcript(call.path["id"])
    query: TranscriptQuery = call.query
    window = await transcript.window(
        before=query.before, after=query.after, around=query.around, revision=query.revision,
        limit=query.newest,
    )  # fmt: skip
    return TranscriptPage(
        items=tuple(map(_transcript_entry, window.messages)),
        before=window.before,
        after=window.after,
        revision=window.revision,
        is_current=window.is_current,
        can_redo=window.can_redo,
    )


async def read_history(call: ApiCall) -> HistoryReply:
    transcript = await call.scope.require_transcript(call.path["id"])
    query: HistoryQuery = call.query
    messages = await transcript.history(
        query.max_messages, query.max_tokens, query.timestamps, query.format
    )
    return HistoryReply(tuple(messages))


async def account_history(call: ApiCall) -> HistoryAccountReply:
    session = await call.session()
    transcript = await call.scope.require_transcript(session.id)
    query: AccountQuery = call.query
    account = await transcript.account(
        query.max_messages, query.max_tokens, query.timestamps, query.format,
        upto=query.upto, limit=query.newest,
    )  # fmt: skip
    return HistoryAccountReply(
        rows=tuple(
            AccountEntry(entry=_transcript_entry(message), fate=fate)
            for message, fate in account.rows
        ),
        before=account.before,
        items=account.messages,
        tokens=account.tokens,
        summary=account.summary,
        context_prompt=await call.api.store.context_prompt(session),
    )


async def search_messages(call: ApiCall) -> Page[Hit]:
    query: SearchQuery = call.query
    if call.caller.is_owner:
        return await call.api.store.search(
            query.q,
            platform=query.platform,
            person=query.person,
            key=query.key,
            limit=query.limit,
            cursor=query.cursor,
        )
    _refuse_owner_filters(query.key, query.person)
    view = call.scope.own_view(_own_platform(query.platform))
    return await view.search(query.q, limit=query.limit, cursor=query.cursor)


async def sum_usage(call: ApiCall) -> UsageSums:
    query: UsageQuery = call.query
    _refuse_other_groupings(call, [query.by])
    sums = await call.api.store.usage.sum(query.by, query.since, query.until)
    if not call.caller.is_owner:
        own = _own_persons(call)
        sums = {name: usage for name, usage in sums.items() if name in own}
    return UsageSums(query.by, sums)


async def report_usage(call: ApiCall) -> UsageReport:
    query: UsageReportQuery = call.query
    groups = query.by.split(" ")
    _refuse_other_groupings(call, groups)
    for group in groups:
        validate.choice("by", group, GROUPINGS)
    by = cast(list[Grouping], groups)
    since = query.since or call.api.store.now() - _USAGE_LOOK_BACK
    usage = call.api.store.usage
    if call.caller.is_owner:
        return await usage.report(by, since, query.until, by_day=query.by_day)
    reports = [
        await usage.report(by, since, query.until, by_day=query.by_day, person=person)
        for person in _own_persons(call)
    ]
    return UsageReport(
        sums={"person": {k: v for each in reports for k, v in each.sums["person"].items()}},
        days=[day for each in reports for day in each.days],
    )


def _refuse_other_groupings(call: ApiCall, groups: list[str]) -> None:
    """Raise `AccessDenied` unless the caller may see usage by these groups."""
    if not call.caller.is_owner and groups != ["person"]:
        raise AccessDenied(
            "Only the owner may see the usage of others.", hint="Use by=person: it has yours."
        )


def _own_persons(call: ApiCall) -> list[str]:
    """Return the identities that a token has on its platforms."""
    return [call.caller.person(platform) for platform in (API, WEB)]


async def sum_usage_by_day(call: ApiCall) -> DayUsageList:
    query: DayUsageQuery = call.query
    store = call.api.store
    since = query.since or store.now() - _USAGE_LOOK_BACK
    if call.caller.is_owner:
        items = await store.usage.by_day(query.by, since, query.until)
    else:
        items = []
        for person in _own_persons(call):
            items += await store.usage.by_day(query.by, since, query.until, person=person)
    return DayUsageList(
        by=query.by, since=since, zone=str(store.sync.context.zone), items=tuple(items)
    )


def _transcript_entry(message: Message) -> TranscriptEntry:
    return TranscriptEntry(
        seq=message.seq,
        turn=message.turn,
        role=message.role,
        kind=message.kind,
        at=message.at,
        author=None if message.author is None else msgspec.json.decode(message.author),
        body=message.body,
    )


def _refuse_owner_filters(*filters: str | None) -> None:
    if any(value is not None for value in filters):
        raise AccessDenied(
            "Only the owner may filter by person or key.",
            hint="Leave both out: the result has your own sessions only.",
        )


def _own_platform(platform: str | None) -> str:
    if platform not in (None, API, WEB):
        raise AccessDenied(f"You have no sessions on {platform[:40]}.", hint=f"Use {API} or {WEB}.")
    return platform or API


TABLE = (
    Operation(
        method="GET", path="/sessions", summary="List sessions, newest activity first.",
        act=list_sessions, query=SessionQuery, answer=SessionList,
    ),
    Operation(
        method="GET", path=SESSION_PATH, summary="Get one session.",
        act=get_session, answer=Session,
    ),
    Operation(
        method="PATCH", path=SESSION_PATH, summary="Set or remove the title of a session.",
        act=rename_session, body=RenameRequest, answer=Session,
    ),
    Operation(
        method="DELETE", path=SESSION_PATH, summary="Delete a session and all its data.",
        act=delete_session,
    ),
    Operation(
        method="POST", path=SESSION_PATH + "/end", summary="End a session.",
        act=end_session, body=EndRequest, answer=Session,
    ),
    Operation(
        method="POST", path=SESSION_PATH + "/reset", answer=Session, act=reset_session,
        summary="End the current session of the same conversation, and begin a new one.",
    ),
    Operation(
        method="POST", path=SESSION_PATH + "/resume", answer=Session, act=resume_session,
        summary="Make an earlier session the current one of its conversation.",
    ),
    Operation(
        method="POST", path=SESSION_PATH + "/fork", body=ForkRequest, answer=Session,
        act=fork_session,
        summary="Begin a new current session with the same messages, or those of a revision.",
    ),
    Operation(
        method="GET", path=SESSION_PATH + "/explain", answer=Explanation, act=explain_session,
        summary="Explain why the session began, continued and ended.",
    ),
    Operation(
        method="GET", path=SESSION_PATH + "/transcript", act=read_transcript,
        summary="Read visible messages: the newest, or a window around a position or revision.",
        query=TranscriptQuery, answer=TranscriptPage,
    ),
    Operation(
        method="GET", path=SESSION_PATH + "/history", act=read_history,
        summary="Read the history as a model would get it.",
        query=HistoryQuery, answer=HistoryReply,
    ),
    Operation(
        method="GET", path=SESSION_PATH + "/account", act=account_history, query=AccountQuery,
        answer=HistoryAccountReply,
        summary="Read the history with what became of each row: shown, mended, shortened, cut.",
    ),
    Operation(
        method="GET", path="/search", summary="Find messages that contain all words, best first.",
        act=search_messages, query=SearchQuery, answer=Page[Hit],
    ),
    Operation(
        method="GET", path="/usage", act=sum_usage, query=UsageQuery, answer=UsageSums,
        summary="Sum tokens and cost by group: your own, or all for the owner.",
    ),
    Operation(
        method="GET", path="/usage/report", act=report_usage, query=UsageReportQuery,
        answer=UsageReport, summary="Sum up usage by several groups and by day, at one moment.",
    ),
    Operation(
        method="GET", path="/usage/days", act=sum_usage_by_day, query=DayUsageQuery,
        answer=DayUsageList,
        summary="Sum calls, tokens and cost by day and group: your own, or all for the owner.",
    ),
)  # fmt: skip
