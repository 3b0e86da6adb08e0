"""The newest turn of a session: look at it, stop it, have its message answered again.

Both requests go the way of the commands `/stop` and `/retry` of the same chat, through the inbox:
so any node can get them, and whoever wrote is told, or gets the new answer.
"""

from __future__ import annotations

import uuid

import msgspec

from tertulia.core.session import Session
from tertulia.core.source import Source
from tertulia.errors import IllegalMove
from tertulia.http.auth import API
from tertulia.http.routing import SESSION_PATH, ApiCall, Operation
from tertulia.records.turns.newest import NewestTurn


class TurnView(msgspec.Struct, frozen=True):
    """The newest turn of a session; None if it had none."""

    turn: NewestTurn | None


async def read_turn(call: ApiCall) -> TurnView:
    session = await call.session()
    return TurnView(await call.api.store.sessions.newest_turn(session.id))


async def stop_turn(call: ApiCall) -> TurnView:
    session = await _current_session(call)
    turn = await call.api.store.sessions.newest_turn(session.id)
    if turn is None or not turn.can_be_stopped:
        raise IllegalMove("There is nothing to stop.", hint="The answer may just have come.")
    await call.api.store.sessions.record_request(session.id, "stop", by=call.actor)
    await _put_command(call, "/stop", await _author(call, session, turn))
    return TurnView(turn)


async def retry_turn(call: ApiCall) -> TurnView:
    store = call.api.store
    session = await _current_session(call)
    turn = await store.sessions.newest_turn(session.id)
    if turn is None:
        raise IllegalMove("There is no message to answer again.", hint="Nobody has written yet.")
    if turn.is_running:
        raise IllegalMove("It is being answered now.", hint="Stop it first, or wait for its end.")
    if session.origin.platform == API:
        raise IllegalMove(
            "Only the program that sent the message can have it answered again.",
            hint="Undo the last exchange there, and send the message once more.",
        )
    await store.sessions.record_request(session.id, "retry", by=call.actor)
    if turn.is_dead and turn.item is not None:
        await store.queues.settle_message(turn.item, "retry", by=call.actor)
    else:
        await _put_command(call, "/retry", await _author(call, session, turn))
    return TurnView(turn)


async def _current_session(call: ApiCall) -> Session:
    session = await call.session()
    if session.ended_at is not None:
        raise IllegalMove("The session has ended.", hint="Resume it first.")
    return session


async def _author(call: ApiCall, session: Session, turn: NewestTurn) -> Source:
    """Return who wrote the message of a turn, and where."""
    if turn.item is None:
        return session.origin
    item = await call.api.store.queues.require_message(turn.item)
    return item.source


async def _put_command(call: ApiCall, text: str, source: Source) -> None:
    """Put a command into the inbox, and let a turn of this node notice it at once."""
    item = await call.api.store.inbox.put(source, text, message_id=f"http:{uuid.uuid4().hex}")
    await call.api.gateway.pipeline.interrupts.notice(item)


TABLE = (
    Operation(
        method="GET", path=SESSION_PATH + "/turn", act=read_turn, answer=TurnView,
        summary="Look at the newest turn of a session: does it run, on which node, did it fail?",
    ),
    Operation(
        method="POST", path=SESSION_PATH + "/stop", act=stop_turn, answer=TurnView,
        summary="Stop the answer under way, as /stop in the chat does.",
    ),
    Operation(
        method="POST", path=SESSION_PATH + "/retry", act=retry_turn, answer=TurnView,
        summary="Have the last message answered again, as /retry in the chat does.",
    ),
)  # fmt: skip
