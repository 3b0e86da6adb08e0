"""The addresses of the web adapter: post a message, read the events of a chat."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tertulia.core.message import ASSISTANT, Message, text_of
from tertulia.core.session import Session
from tertulia.core.source import Source
from tertulia.errors import PlatformUnavailable
from tertulia.http import conversation_id
from tertulia.http.auth import WEB
from tertulia.http.event_stream import (
    PING,
    EventStream,
    event,
)
from tertulia.http.routing import (
    ApiCall,
    Operation,
)
from tertulia.platforms.base import Incoming, Outgoing, StreamUpdate
from tertulia.platforms.web import PageStream, WebAdapter

LAST_EVENT = "Last-Event-ID"
# How much of a transcript a page is given again at most, and is looked through for a place.
_REPLAYED = 1000
_LOOK_BACK = 50


class WebMessage(msgspec.Struct, frozen=True, kw_only=True):
    text: Annotated[str, Meta(min_length=1)]
    message_id: str | None = None


class MessageAccepted(msgspec.Struct, frozen=True):
    """It is stored; the answer comes as an event."""

    message_id: str


class WebChat(msgspec.Struct, frozen=True):
    """How far a page has read: the id of an event."""

    session_id: str
    seq: int

    def __str__(self) -> str:
        return f"{self.session_id}/{self.seq}"


async def post_message(call: ApiCall) -> MessageAccepted:
    adapter = _adapter(call)
    given: WebMessage = call.body
    message, _ = conversation_id.message_id(call.request, given.message_id)
    source = _source(call)
    await call.api.remember(call.caller)
    await adapter.accept(Incoming(source=source, text=given.text, message_id=message))
    return MessageAccepted(message)


async def read_events(call: ApiCall) -> EventStream:
    adapter, source = _adapter(call), _source(call)
    settings = call.api.settings
    page = _Page(call, adapter, source, call.request.headers.get(LAST_EVENT))
    return EventStream(page.events(settings.ping_seconds), seconds=settings.stream_seconds)


class _Page:
    """One open page."""

    def __init__(
        self, call: ApiCall, adapter: WebAdapter, source: Source, last_seen: str | None
    ) -> None:
        self._store = call.api.store
        self._adapter = adapter
        self._source = source
        self._last_seen = last_seen
        self._place: WebChat | None = None

    async def events(self, ping: float) -> AsyncGenerator[bytes, None]:
        with self._adapter.connected(self._source) as stream:
            yield PING  # whoever connects learns at once that it worked
            for missed in await self._missed(stream):
                yield missed
            while True:
                try:
                    found = await asyncio.wait_for(stream.next(), ping)
                except TimeoutError:
                    yield PING
                    continue
                if found is None:
                    return
                yield await self._event(found)

    async def _event(self, found: Outgoing | StreamUpdate) -> bytes:
        if isinstance(found, StreamUpdate):
            return event({"turn": found.turn, "text": found.text}, name=found.kind)
        await self._move_to(found.text)
        data = {"text": found.text, "delivery": found.delivery}
        return event(data, name="message", id=None if self._place is None else str(self._place))

    async def _move_to(self, text: str) -> None:
        """The place of what was just delivered; what is no part of the transcript moves nothing."""
        session = await self._current()
        if session is None:
            return
        entries = await self._store.transcript(session.id).entries(newest=_LOOK_BACK)
        for one in reversed(entries):
            if one.role == ASSISTANT and text_of(one.body) == text:
                self._place = WebChat(session.id, one.seq)
                return

    async def _missed(self, stream: PageStream) -> list[bytes]:
        """What was answered after the last event that the page has seen."""
        seen = await self._seen()
        if seen is None:
            return []
        self._place = seen
        found = await self._answers(seen.session_id, seen.seq)
        session = await self._current()
        if session is not None and session.id != seen.session_id:
            found += await self._answers(session.id, 0)
        missed = []
        for place, text in found:
            stream.had(text)
            self._place = place
            missed.append(event({"text": text}, name="message", id=str(place)))
        return missed

    async def _answers(self, session_id: str, after: int) -> list[tuple[WebChat, str]]:
        entries: list[Message] = await self._store.transcript(session_id).entries(newest=_REPLAYED)
        return [
            (WebChat(session_id, one.seq), text_of(one.body))
            for one in entries
            if one.seq > after and one.role == ASSISTANT and not one.body.get("tool_calls")
        ]

    async def _seen(self) -> WebChat | None:
        """The place the page names, if it is one of this very chat."""
        session_id, _, number = (self._last_seen or "").rpartition("/")
        if not session_id or not number.isascii() or not number.isdigit() or len(number) > 15:
            return None
        key = await self._store.sessions.conversation(self._source)
        session = await self._store.sessions.get(session_id)
        return WebChat(session_id, int(number)) if session and session.key == key else None

    async def _current(self) -> Session | None:
        key = await self._store.sessions.conversation(self._source)
        found: Session | None = await self._store.sessions.current(key)
        return found


def _source(call: ApiCall) -> Source:
    return call.caller.source(WEB, conversation_id.checked("chat", call.path["chat"]))


def _adapter(call: ApiCall) -> WebAdapter:
    found: Any = call.api.web
    if found is None:
        raise PlatformUnavailable(
            "This gateway has no web platform.",
            hint="Put [platforms.web] into the configuration.",
        )
    adapter: WebAdapter = found
    return adapter


TABLE = (
    Operation(
        method="POST", path="/web/{chat}/messages", act=post_message, role="guest", body=WebMessage,
        answer=MessageAccepted, status=202, headers=(conversation_id.IDEMPOTENCY,),
        summary="Say something; it is stored when this answers, and the answer comes as an event.",
    ),
    Operation(
        method="GET", path="/web/{chat}/events", act=read_events, role="guest", streams=True,
        headers=(LAST_EVENT,), summary="The events of a chat, from the last one seen on.",
    ),
)  # fmt: skip
