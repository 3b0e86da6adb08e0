"""Turns whose caller waits for the whole answer, and requests that a client repeats by itself."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable

import msgspec
from starlette.requests import ClientDisconnect, Request

from tertulia.gateway.request_reply import AgentReply, AgentRequest, Responder, stopping
from tertulia.http import conversation_id
from tertulia.http.event_stream import wait_for_disconnect

# OpenAI's clients number their attempts: 0, then 1, 2 … for the same request.
ATTEMPT_HEADER = "x-stainless-retry-count"
_MAX_REQUESTS = 10_000
_REMEMBERED_SECONDS = 900.0


class MessageName(msgspec.Struct, frozen=True):
    """The id of the message in a request.

    is_named     the client chose it and can ask for the answer later
    can_repeat   the client sends the same request again by itself if this one fails
    """

    id: str
    is_named: bool = False
    can_repeat: bool = False


class RepeatedRequests:
    """Recognises requests that a client sends again by itself, by their content.

    OpenAI's clients repeat a request that failed, without an idempotency key. Only a request that
    says it is a further attempt is compared: saying the same twice is two messages.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._ids: dict[bytes, tuple[str, float]] = {}

    def choose_message(self, request: Request, caller: str, body: object) -> MessageName:
        """Return the message id of a request; a further attempt has the id of the first one."""
        message_id, is_named = conversation_id.choose_message_id(request)
        attempt = request.headers.get(ATTEMPT_HEADER, "")
        if is_named or not attempt:
            return MessageName(message_id, is_named)
        conversation = request.headers.get(conversation_id.HEADER)
        digest = hashlib.sha256(
            msgspec.json.encode([caller, request.url.path, conversation])
            + msgspec.json.encode(body)
        ).digest()
        self._forget_old()
        earlier = self._ids.get(digest)
        if attempt != "0" and earlier is not None:
            message_id = earlier[0]
        self._ids.pop(digest, None)
        self._ids[digest] = message_id, self._now()
        return MessageName(message_id, can_repeat=True)

    def _forget_old(self) -> None:
        oldest = self._now() - _REMEMBERED_SECONDS
        while self._ids:
            digest, (_, at) = next(iter(self._ids.items()))
            if at > oldest and len(self._ids) < _MAX_REQUESTS:
                return
            del self._ids[digest]


async def reply_to(
    responder: Responder, request: AgentRequest, name: MessageName, client: Request
) -> AgentReply:
    """Run a turn and return its reply; end the turn if the client leaves before.

    A message that the client named is answered in any case: the answer can be asked for later.
    Raises `PlatformUnavailable` if the gateway stops before the turn has ended.
    """
    turn = responder.start(request)
    leaving = asyncio.create_task(wait_for_disconnect(client.receive))
    try:
        await asyncio.wait({turn, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not turn.done():
            raise ClientDisconnect
        if turn.cancelled():
            raise stopping()
        return turn.result()
    finally:
        leaving.cancel()
        if not turn.done():
            _abandon(turn, request, name)


def _abandon(turn: asyncio.Task[AgentReply], request: AgentRequest, name: MessageName) -> None:
    if name.can_repeat:
        turn.cancel()  # nothing is stored as the answer: the next attempt gets a whole one
    elif not name.is_named:
        request.stop.set()
    # Retrieve the exception, so that asyncio does not log it: the turn records its own failure.
    turn.add_done_callback(lambda task: task.cancelled() or task.exception())
