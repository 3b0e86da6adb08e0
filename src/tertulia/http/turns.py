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
    Answer,
    Ask,
)
from tertulia.http import conversation_id
from tertulia.http.auth import API
from tertulia.http.errors import (
    fault_of,
    json_response,
)
from tertulia.http.event_stream import (
    PING,
    EventStream,
    Run,
    event,
)
from tertulia.http.routing import (
    Call,
    Operation,
)


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What is said. Without a `conversation` a new one begins; the answer tells its name."""

    text: Annotated[str, Meta(min_length=1)]
    conversation: str | None = None
    message_id: str | None = None
    stream: bool = False


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """What was answered. `is_repeated`: the message had been answered before, and this is it."""

    conversation: str
    session_id: str
    text: str | None
    usage: Usage
    is_repeated: bool


async def say(call: Call) -> Response:
    given: Said = call.body
    message, is_named = conversation_id.message_id(call.request, given.message_id)
    named = conversation_id.named(call.request, message, given.conversation)
    ask = Ask(source=call.caller.source(API, named.id), text=given.text, message_id=message)
    await call.api.meet(call.caller)
    settings = call.api.settings
    if not given.stream:
        answer = await call.api.direct.start(ask)
        return json_response(_answered(answer, named.id))
    run = Run(call.api.direct, ask, is_named=is_named, ping=settings.ping_seconds)
    await run.begin()
    return EventStream(_events(run, named.id), seconds=settings.stream_seconds)


async def _events(run: Run, conversation: str) -> AsyncGenerator[bytes, None]:
    try:
        async with aclosing(run.texts()) as texts:
            async for text in texts:
                yield PING if text is None else event({"text": text}, name="delta")
        yield event(_answered(await run.answer(), conversation), name="answer")
    except Error as problem:
        yield event(fault_of(problem), name="error")


def _answered(answer: Answer, conversation: str) -> Answered:
    return Answered(
        conversation=conversation,
        session_id=answer.session_id,
        text=answer.text,
        usage=answer.usage,
        is_repeated=answer.is_repeated,
    )


TABLE = (
    Operation(
        method="POST", path="/turns", act=say, role="guest", body=Said, answer=Answered,
        summary="Say something and wait for the answer.", streams=True,
        headers=(conversation_id.HEADER, conversation_id.IDEMPOTENCY),
    ),
)  # fmt: skip
