"""Post a message and get its answer, as JSON or as a stream of events."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from starlette.responses import Response

from tertulia.core.usage import Usage
from tertulia.errors import Error
from tertulia.gateway.request_reply import AgentReply, AgentRequest
from tertulia.http import conversation_id
from tertulia.http.auth import API
from tertulia.http.awaited_turn import MessageName, reply_to
from tertulia.http.errors import error_detail, json_response
from tertulia.http.event_stream import PING, StreamedTurn, format_event
from tertulia.http.routing import ApiCall, Operation


class TurnRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A message. Without a `conversation` a new one begins; the reply has its name."""

    text: Annotated[str, Meta(min_length=1)]
    conversation: str | None = None
    message_id: str | None = None
    stream: bool = False


class TurnReply(msgspec.Struct, frozen=True, kw_only=True):
    """The answer. `is_repeated`: the message was answered earlier, and this is that answer.

    With the state `waiting` a tool needs the approval of the owner and there is no text yet; the
    same request, with the same message id, returns the answer once it is there.
    """

    conversation: str
    session_id: str
    text: str | None
    usage: Usage
    is_repeated: bool
    state: Literal["answered", "waiting"] = "answered"


async def say(call: ApiCall) -> Response:
    body: TurnRequest = call.body
    message_id, is_named = conversation_id.choose_message_id(call.request, body.message_id)
    conversation = conversation_id.choose_conversation(call.request, message_id, body.conversation)
    source = call.caller.source(API, conversation.id)
    request = AgentRequest(source=source, text=body.text, message_id=message_id)
    if not body.stream:
        name = MessageName(message_id, is_named)
        reply = await reply_to(call.api.responder, request, name, call.request)
        return json_response(_turn_reply(reply, conversation.id))
    turn = await call.start_streamed_turn(request, is_named=is_named)
    return call.stream(_events(turn, conversation.id))


async def _events(turn: StreamedTurn, conversation: str) -> AsyncGenerator[bytes, None]:
    try:
        async with aclosing(turn.texts()) as texts:
            async for text in texts:
                yield PING if text is None else format_event({"text": text}, name="delta")
        yield format_event(_turn_reply(await turn.reply(), conversation), name="answer")
    except Error as problem:
        yield format_event(error_detail(problem), name="error")


def _turn_reply(reply: AgentReply, conversation: str) -> TurnReply:
    return TurnReply(
        conversation=conversation,
        session_id=reply.session_id,
        text=reply.text,
        usage=reply.usage,
        is_repeated=reply.is_repeated,
        state="waiting" if reply.is_waiting else "answered",
    )


TABLE = (
    Operation(
        method="POST", path="/turns", act=say, role="guest", body=TurnRequest, answer=TurnReply,
        summary="Post a message and wait for the answer.", streams=True,
        headers=(conversation_id.HEADER, conversation_id.IDEMPOTENCY),
    ),
)  # fmt: skip
