"""The addresses of the web adapter: post a message, and read the events of a chat."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import datetime
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote, unquote

import msgspec
from msgspec import Meta

from tertulia.core.media import Media
from tertulia.core.source import Source
from tertulia.errors import ConfigError, NotFound
from tertulia.http import conversation_id, stream_ticket
from tertulia.http.auth import WEB, Caller, Unauthorized
from tertulia.http.event_stream import PING, EventStream, format_event
from tertulia.http.parameters import Count
from tertulia.http.routing import ApiCall, Operation, address_of
from tertulia.http.stream_ticket import StreamTicket
from tertulia.platforms.base import Incoming, StreamUpdate
from tertulia.platforms.web import PageStream, WebAdapter
from tertulia.records.queues.outbox import Delivery

if TYPE_CHECKING:
    from tertulia.http.app import Api

LAST_EVENT = "Last-Event-ID"
VISITOR = "X-Visitor-Id"
_REPLAY_LIMIT = 1000  # deliveries that a page can be sent again
_BEFORE_ALL = "0"  # the last event id of a page that is not new, and has received nothing yet
_VISITOR_LENGTH = 24
_MAX_FILES = 10


class WebFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a message: its bytes in Base64, and its name."""

    data: str
    name: Annotated[str, Meta(max_length=255)] | None = None


class WebMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A text, files, or both. The body limit of the caller holds for all of it."""

    text: str = ""
    message_id: str | None = None
    files: Annotated[tuple[WebFile, ...], Meta(max_length=_MAX_FILES)] = ()


class MessageAccepted(msgspec.Struct, frozen=True):
    """The message is stored; its answer will come as an event."""

    message_id: str


class TicketMade(msgspec.Struct, frozen=True):
    """The path of a stream, which can be opened until then without a token."""

    address: str
    until: datetime


class StreamQuery(msgspec.Struct, frozen=True):
    """`last` is the id of the last event received, if the header `Last-Event-ID` is not sent."""

    last: str | None = None


class ChatDeliveryQuery(msgspec.Struct, frozen=True):
    """How many of the newest deliveries to return."""

    limit: Count = 50


class ChatDeliveries(msgspec.Struct, frozen=True):
    """The newest deliveries of a chat, the newest first."""

    items: tuple[Delivery, ...]


class Visitor(msgspec.Struct, frozen=True):
    """A new visitor of a page; the page sends the id with each of its requests."""

    visitor: str


async def create_visitor(call: ApiCall) -> Visitor:
    _require_adapter(call)
    name = os.urandom(12).hex()
    return Visitor(f"{name}{_signature(call.api, call.caller, name)}")


async def post_message(call: ApiCall) -> MessageAccepted:
    adapter = _require_adapter(call)
    body: WebMessage = call.body
    if not body.text and not body.files:
        raise ConfigError("The message is empty.", hint="Give text or files.", field="text")
    message_id, _ = conversation_id.choose_message_id(call.request, body.message_id)
    source = _source(call)
    media = [await _store_file(call, source, file) for file in body.files]
    await adapter.accept(
        Incoming(source=source, text=body.text or None, message_id=message_id, media=tuple(media))
    )
    return MessageAccepted(message_id)


async def _store_file(call: ApiCall, source: Source, file: WebFile) -> Media:
    """Store a file, and return what the message keeps of it; raise `TooLarge` or `ConfigError`."""
    try:
        content = base64.b64decode(file.data, validate=True)
    except ValueError as problem:
        raise ConfigError(
            "The data of a file is not Base64.", hint="Encode its bytes.", field="files"
        ) from problem
    limit = call.api.gateway.pipeline.media_fetcher.max_bytes(source)
    media: Media = await call.api.store.media.put(content, name=file.name, max_bytes=limit)
    return media


async def read_events(call: ApiCall) -> EventStream:
    return _stream(call, _source(call), call.request.headers.get(LAST_EVENT))


async def list_chat_deliveries(call: ApiCall) -> ChatDeliveries:
    _require_adapter(call)
    newest = await call.api.store.outbox.find_newest_in_chat(_source(call), limit=call.query.limit)
    return ChatDeliveries(tuple(newest))


async def create_ticket(call: ApiCall) -> TicketMade:
    _require_adapter(call)
    until = call.api.store.now() + stream_ticket.LIFETIME
    ticket = StreamTicket(
        token=call.caller.name,
        chat=conversation_id.check_name("chat", call.path["chat"]),
        visitor=_visitor(call),
        until=until,
    )
    text = stream_ticket.seal_ticket(ticket, call.api.derive_key("tickets"))
    return TicketMade(f"/web/streams/{text}", until)


async def read_stream(call: ApiCall) -> EventStream:
    api = call.api
    ticket = stream_ticket.open_ticket(
        call.path["ticket"], api.derive_key("tickets"), api.store.now()
    )
    token = None if ticket is None else api.token_of(ticket.token)
    if ticket is None or token is None:
        api.authenticator.count_stranger()
        raise Unauthorized(
            "The ticket is unknown or has expired.", hint="POST /web/CHAT/tickets makes a new one."
        )
    caller = api.authenticator.caller_of(token, address_of(call.request))
    api.authenticator.count_ticket(caller)
    query: StreamQuery = call.query
    last = call.request.headers.get(LAST_EVENT) or query.last
    source = _source_of(caller, ticket.chat, ticket.visitor)
    return _stream(msgspec.structs.replace(call, caller=caller), source, last)


def _stream(call: ApiCall, source: Source, last_event_id: str | None) -> EventStream:
    adapter = _require_adapter(call)
    call.api.streams.check(call.caller.name, call.caller.address)
    page = _Page(call, adapter, source, last_event_id)
    return call.stream(page.events(call.api.settings.ping_seconds))


class _Page:
    """One open page of a chat. The id of an event is the key of its delivery."""

    def __init__(
        self, call: ApiCall, adapter: WebAdapter, source: Source, last_event_id: str | None
    ) -> None:
        self._outbox = call.api.store.outbox
        self._adapter = adapter
        self._source = source
        self._last_event_id = last_event_id

    async def events(self, ping: float) -> AsyncGenerator[bytes, None]:
        """Yield the events that the page missed, then new ones until the stream ends."""
        with self._adapter.open_stream(self._source) as stream:
            yield PING  # tells the client at once that it is connected
            missed = await self._missed()
            stream.begin_replay({delivery.delivery for delivery in missed})
            for delivery in missed:
                yield _message_event(delivery.delivery, delivery.body["text"])
            while True:
                # Deliveries wait while no page is open, and a node without this page may have
                # tried to send one just now.
                await self._outbox.resume(self._source)
                async with aclosing(_until_quiet(stream, ping)) as events:
                    async for event in events:
                        if not event:
                            return
                        yield event
                yield PING

    async def _missed(self) -> list[Delivery]:
        """Return the deliveries after the last one that the page received."""
        after = await self._last_received()
        if after is None:
            return []
        deliveries: list[Delivery] = await self._outbox.find_in_chat(
            self._source, after=after, limit=_REPLAY_LIMIT
        )
        return [delivery for delivery in deliveries if delivery.state != "dead"]

    async def _last_received(self) -> int | None:
        """Return the number of the last delivery that the page received, or None if it is new."""
        if not self._last_event_id:
            return None
        if self._last_event_id == _BEFORE_ALL:
            return 0
        last = await self._outbox.get(unquote(self._last_event_id))
        if last is None or _chat(last) != (WEB, self._source.account, self._source.chat_id):
            return None
        return last.id


async def _until_quiet(stream: PageStream, seconds: float) -> AsyncGenerator[bytes, None]:
    """Yield the events of a stream until none came for `seconds`; an empty one is its end."""
    while True:
        try:
            update = await asyncio.wait_for(stream.next(), seconds)
        except TimeoutError:
            return
        if update is None:
            yield b""
        elif isinstance(update, StreamUpdate):
            data = {"turn": update.turn, "text": update.text}
            yield format_event(data, name=update.kind)
        else:
            yield _message_event(update.delivery, update.text)


def _message_event(delivery: str, text: str) -> bytes:
    data = {"text": text, "delivery": delivery}
    return format_event(data, name="message", id=quote(delivery, safe=":/"))


def _chat(delivery: Delivery) -> tuple[str, str, str | None]:
    return delivery.platform, delivery.account, delivery.chat_id


def _source(call: ApiCall) -> Source:
    """Return the chat of a request. A guest's token is shared by many: each visitor has their own.

    Raises `ConfigError` if a guest sends no visitor id that this server made for the token.
    """
    chat = conversation_id.check_name("chat", call.path["chat"])
    return _source_of(call.caller, chat, _visitor(call))


def _source_of(caller: Caller, chat: str, visitor: str) -> Source:
    if caller.role != "guest":
        return caller.source(WEB, chat)
    name = f"visitor {visitor[:6]}"
    account = f"{caller.name}/{visitor}"
    return Source(WEB, chat, account=account, user_id=visitor, user_name=name)


def _visitor(call: ApiCall) -> str:
    """Return the name of the visitor that a guest's page sends; "" for other people."""
    if call.caller.role != "guest":
        return ""
    visitor = call.request.headers.get(VISITOR, "")
    if not is_own_visitor(call.api, call.caller, visitor):
        raise ConfigError(
            f"{VISITOR} is missing or was not made by this server.",
            hint="POST /web/visitors gives a page its own id.",
            field=VISITOR,
        )
    return visitor[:_VISITOR_LENGTH]


def is_own_visitor(api: Api, caller: Caller, visitor: str) -> bool:
    """Return whether this server made the id of a visitor, for the token of the caller."""
    name = visitor[:_VISITOR_LENGTH]
    own = f"{name}{_signature(api, caller, name)}"
    return visitor.isascii() and hmac.compare_digest(visitor, own)


def _signature(api: Api, caller: Caller, name: str) -> str:
    """Return the proof that this server made the name of a visitor, for this token."""
    key = api.derive_key("visitors")
    return hmac.new(key, f"{caller.name}/{name}".encode(), hashlib.sha256).hexdigest()[:24]


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
        method="POST", path="/web/visitors", act=create_visitor, role="guest", answer=Visitor,
        status=201, summary="Create an id for a visitor of a page whose token many share.",
    ),
    Operation(
        method="POST", path="/web/{chat}/messages", act=post_message, role="guest", body=WebMessage,
        answer=MessageAccepted, status=202, headers=(conversation_id.IDEMPOTENCY, VISITOR),
        summary="Store a message; its answer comes as an event.",
    ),
    Operation(
        method="GET", path="/web/{chat}/events", act=read_events, role="guest", streams=True,
        headers=(LAST_EVENT, VISITOR),
        summary="Read the events of a chat, from the last one received on.",
    ),
    Operation(
        method="GET", path="/web/{chat}/deliveries", act=list_chat_deliveries, role="member",
        query=ChatDeliveryQuery, answer=ChatDeliveries,
        summary="List the newest deliveries of a chat, sent or not.",
    ),
    Operation(
        method="POST", path="/web/{chat}/tickets", act=create_ticket, role="guest",
        answer=TicketMade, status=201, headers=(VISITOR,),
        summary="Make an address at which an EventSource can read the events of a chat.",
    ),
    Operation(
        method="GET", path="/web/streams/{ticket}", act=read_stream, role=None, streams=True,
        query=StreamQuery, headers=(LAST_EVENT,),
        summary="Read the events of a chat with a ticket instead of a token.",
    ),
)  # fmt: skip
