"""A message, and its answer: as JSON, or as events while it is written."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from tertulia.core.usage import Usage
from tertulia.errors import Error
from tertulia.gateway.request_reply import (
    AgentReply,
    AgentRequest,
)
from tertulia.http import conversation_id
from tertulia.http.auth import API
from tertulia.http.errors import (
    error_detail,
    json_response,
)
from tertulia.http.event_stream import (
    PING,
    EventStream,
    StreamedTurn,
    event,
)
from tertulia.http.routing import (
    ApiCall,
    Operation,
)


class TurnRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is said. Without a `conversation` a new one begins; the answer tells its name."""

    text: Annotated[str, Meta(min_length=1)]
    conversation: str | None = None
    message_id: str | None = None
    stream: bool = False


class TurnReply(msgspec.Struct, frozen=True, kw_only=True):
    """What was answered. `is_repeated`: the message had been answered before, and this is it."""

    conversation: str
    session_id: str
    text: str | None
    usage: Usage
    is_repeated: bool


async def say(call: ApiCall) -> Response:
    given: TurnRequest = call.body
    message, is_named = conversation_id.message_id(call.request, given.message_id)
    named = conversation_id.named(call.request, message, given.conversation)
    ask = AgentRequest(
        source=call.caller.source(API, named.id), text=given.text, message_id=message
    )
    await call.api.remember(call.caller)
    settings = call.api.settings
    if not given.stream:
        answer = await call.api.direct.start(ask)
        return json_response(_answered(answer, named.id))
    run = StreamedTurn(call.api.direct, ask, is_named=is_named, ping=settings.ping_seconds)
    await run.begin()
    return EventStream(_events(run, named.id), seconds=settings.stream_seconds)


async def _events(run: StreamedTurn, conversation: str) -> AsyncGenerator[bytes, None]:
    try:
        async with aclosing(run.texts()) as texts:
            async for text in texts:
                yield PING if text is None else event({"text": text}, name="delta")
        yield event(_answered(await run.answer(), conversation), name="answer")
    except Error as problem:
        yield event(error_detail(problem), name="error")


def _answered(answer: AgentReply, conversation: str) -> TurnReply:
    return TurnReply(
        conversation=conversation,
        session_id=answer.session_id,
        text=answer.text,
        usage=answer.usage,
        is_repeated=answer.is_repeated,
    )


TABLE = (
    Operation(
        method="POST", path="/turns", act=say, role="guest", body=TurnRequest, answer=TurnReply,
        summary="Say something and wait for the answer.", streams=True,
        headers=(conversation_id.HEADER, conversation_id.IDEMPOTENCY),
    ),
)  # fmt: skip
