"""The addresses of the web adapter: post a message, and read the events of a chat."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Annotated

import msgspec
from msgspec import Meta

from tertulia.core.message import ASSISTANT, Message, text_of
from tertulia.core.session import Session
from tertulia.core.source import Source
from tertulia.errors import NotFound
from tertulia.http import conversation_id
from tertulia.http.auth import WEB
from tertulia.http.event_stream import PING, EventStream, format_event
from tertulia.http.routing import ApiCall, Operation
from tertulia.platforms.base import Incoming, Outgoing, StreamUpdate
from tertulia.platforms.web import PageStream, WebAdapter

LAST_EVENT = "Last-Event-ID"
# The newest messages of a transcript that a page can be sent again.
_REPLAY_LIMIT = 1000
# The newest messages among which a delivered text is looked for.
_LOOK_BACK = 50


class WebMessage(msgspec.Struct, frozen=True, kw_only=True):
    text: Annotated[str, Meta(min_length=1)]
    message_id: str | None = None


class MessageAccepted(msgspec.Struct, frozen=True):
    """The message is stored; its answer will come as an event."""

    message_id: str


class EventPosition(msgspec.Struct, frozen=True):
    """The id of an event: the position in a transcript up to which a page has read."""

    session_id: str
    seq: int

    def __str__(self) -> str:
        return f"{self.session_id}/{self.seq}"


async def post_message(call: ApiCall) -> MessageAccepted:
    adapter = _require_adapter(call)
    body: WebMessage = call.body
    message_id, _ = conversation_id.choose_message_id(call.request, body.message_id)
    source = _source(call)
    await adapter.accept(Incoming(source=source, text=body.text, message_id=message_id))
    return MessageAccepted(message_id)


async def read_events(call: ApiCall) -> EventStream:
    adapter, source = _require_adapter(call), _source(call)
    call.api.streams.check(call.caller.name)
    page = _Page(call, adapter, source, call.request.headers.get(LAST_EVENT))
    return call.stream(page.events(call.api.settings.ping_seconds))


class _Page:
    """One open page of a chat."""

    def __init__(
        self, call: ApiCall, adapter: WebAdapter, source: Source, last_event_id: str | None
    ) -> None:
        self._store = call.api.store
        self._adapter = adapter
        self._source = source
        self._last_event_id = last_event_id
        self._position: EventPosition | None = None

    async def events(self, ping: float) -> AsyncGenerator[bytes, None]:
        """Yield the events that the page missed, then new ones until the stream ends."""
        with self._adapter.open_stream(self._source) as stream:
            yield PING  # tells the client at once that it is connected
            for event in await self._missed_events(stream):
                yield event
            while True:
                try:
                    update = await asyncio.wait_for(stream.next(), ping)
                except TimeoutError:
                    yield PING
                    continue
                if update is None:
                    return
                yield await self._format(update)

    async def _format(self, update: Outgoing | StreamUpdate) -> bytes:
        if isinstance(update, StreamUpdate):
            return format_event({"turn": update.turn, "text": update.text}, name=update.kind)
        await self._advance_to(update.text)
        data = {"text": update.text, "delivery": update.delivery}
        event_id = None if self._position is None else str(self._position)
        return format_event(data, name="message", id=event_id)

    async def _advance_to(self, text: str) -> None:
        """Move to the position of a delivered text; stay if it is not part of the transcript."""
        session = await self._current_session()
        if session is None:
            return
        messages = await self._store.transcript(session.id).entries(newest=_LOOK_BACK)
        for message in reversed(messages):
            if message.role == ASSISTANT and text_of(message.body) == text:
                self._position = EventPosition(session.id, message.seq)
                return

    async def _missed_events(self, stream: PageStream) -> list[bytes]:
        """Return the answers that were stored after the last event the page received."""
        last = await self._last_position()
        if last is None:
            return []
        self._position = last
        answers = await self._answers(last.session_id, last.seq)
        session = await self._current_session()
        if session is not None and session.id != last.session_id:
            answers += await self._answers(session.id, 0)
        events = []
        for position, text in answers:
            stream.mark_received(text)
            self._position = position
            events.append(format_event({"text": text}, name="message", id=str(position)))
        return events

    async def _answers(self, session_id: str, after: int) -> list[tuple[EventPosition, str]]:
        transcript = self._store.transcript(session_id)
        messages: list[Message] = await transcript.entries(newest=_REPLAY_LIMIT)
        return [
            (EventPosition(session_id, message.seq), text_of(message.body))
            for message in messages
            if message.seq > after
            and message.role == ASSISTANT
            and not message.body.get("tool_calls")
        ]

    async def _last_position(self) -> EventPosition | None:
        """Return the position in `Last-Event-ID`, or None unless it is one of this very chat."""
        session_id, _, number = (self._last_event_id or "").rpartition("/")
        if not session_id or not number.isascii() or not number.isdigit() or len(number) > 15:
            return None
        key = await self._store.sessions.conversation(self._source)
        session = await self._store.sessions.get(session_id)
        return EventPosition(session_id, int(number)) if session and session.key == key else None

    async def _current_session(self) -> Session | None:
        key = await self._store.sessions.conversation(self._source)
        session: Session | None = await self._store.sessions.current(key)
        return session


def _source(call: ApiCall) -> Source:
    return call.caller.source(WEB, conversation_id.check_name("chat", call.path["chat"]))


def _require_adapter(call: ApiCall) -> WebAdapter:
    adapter: WebAdapter | None = call.api.web
    if adapter is None:
        raise NotFound(
            "This gateway has no web platform.",
            hint="Add [platforms.web] to the configuration.",
        )
    return adapter


TABLE = (
    Operation(
        method="POST", path="/web/{chat}/messages", act=post_message, role="guest", body=WebMessage,
        answer=MessageAccepted, status=202, headers=(conversation_id.IDEMPOTENCY,),
        summary="Store a message; its answer comes as an event.",
    ),
    Operation(
        method="GET", path="/web/{chat}/events", act=read_events, role="guest", streams=True,
        headers=(LAST_EVENT,), summary="Read the events of a chat, from the last one received on.",
    ),
)  # fmt: skip
