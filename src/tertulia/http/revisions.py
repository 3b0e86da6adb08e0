"""Changes of a transcript: undo, redo, restore, edit, remove, compact; and its revisions."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tertulia.errors import IllegalMove
from tertulia.http.parameters import Count, Position
from tertulia.http.routing import SESSION_PATH, ApiCall, Operation
from tertulia.records.transcript.windows import RevisionChange

Number = Annotated[int, Meta(ge=1, le=2**53)]
_MAX_TURNS = 1000


class RevisionQuery(msgspec.Struct, frozen=True, kw_only=True):
    limit: Count = 50
    before: Number | None = None


class RevisionPage(msgspec.Struct, frozen=True):
    """Revisions, newest first; `before` of the next page is the last number."""

    items: tuple[RevisionChange, ...]


class UndoRequest(msgspec.Struct, frozen=True):
    turns: Annotated[int, Meta(ge=1, le=_MAX_TURNS)] = 1


class RestoreRequest(msgspec.Struct, frozen=True):
    number: Number


class EditRequest(msgspec.Struct, frozen=True):
    """The message to show instead, in the OpenAI chat form."""

    seq: Position
    message: dict[str, Any]


class RemoveRequest(msgspec.Struct, frozen=True):
    seq: Position


class CompactRequest(msgspec.Struct, frozen=True):
    """How many of the newest turns stay as they are."""

    keep_turns: Annotated[int, Meta(ge=0, le=_MAX_TURNS)] = 4


class TranscriptChange(msgspec.Struct, frozen=True, kw_only=True):
    """What a change did: the revision that is shown now, and the one to restore to undo it.

    `turns` is how many turns an undo took back; `messages` how many a compaction summed up.
    """

    revision: int
    before: int
    turns: int | None = None
    messages: int | None = None


async def list_revisions(call: ApiCall) -> RevisionPage:
    transcript = await call.scope.require_transcript(call.path["id"])
    query: RevisionQuery = call.query
    return RevisionPage(await transcript.find_revisions(limit=query.limit, before=query.before))


async def undo_turns(call: ApiCall) -> TranscriptChange:
    before = await _current_revision(call)
    transcript = await call.scope.require_transcript(call.path["id"])
    turns = await transcript.undo(call.body.turns)
    if turns == 0:
        raise IllegalMove("There is nothing to undo.", hint="Nothing was said yet.")
    return TranscriptChange(revision=await _current_revision(call), before=before, turns=turns)


async def redo_turns(call: ApiCall) -> TranscriptChange:
    before = await _current_revision(call)
    transcript = await call.scope.require_transcript(call.path["id"])
    if not await transcript.redo():
        raise IllegalMove(
            "There is nothing to redo.",
            hint="Only the last undo can be taken back, while nothing was said since. GET"
            " …/revisions lists what can be restored.",
        )
    return TranscriptChange(revision=await _current_revision(call), before=before)


async def restore_revision(call: ApiCall) -> TranscriptChange:
    before = await _current_revision(call)
    transcript = await call.scope.require_transcript(call.path["id"])
    await transcript.restore(call.body.number)
    return TranscriptChange(revision=await _current_revision(call), before=before)


async def edit_message(call: ApiCall) -> TranscriptChange:
    before = await _current_revision(call)
    transcript = await call.scope.require_transcript(call.path["id"])
    body: EditRequest = call.body
    await transcript.edit(body.seq, body.message)
    return TranscriptChange(revision=await _current_revision(call), before=before)


async def remove_message(call: ApiCall) -> TranscriptChange:
    before = await _current_revision(call)
    transcript = await call.scope.require_transcript(call.path["id"])
    await transcript.remove(call.body.seq)
    return TranscriptChange(revision=await _current_revision(call), before=before)


async def compact_transcript(call: ApiCall) -> TranscriptChange:
    before = await _current_revision(call)
    transcript = await call.scope.require_transcript(call.path["id"])
    compaction = await transcript.compact(keep_turns=call.body.keep_turns)
    if compaction is None:
        raise IllegalMove(
            "There is nothing to sum up.", hint="Everything but the newest turns is already."
        )
    return TranscriptChange(
        revision=compaction.revision, before=before, messages=compaction.messages
    )


async def _current_revision(call: ApiCall) -> int:
    transcript = await call.scope.require_transcript(call.path["id"])
    return (await transcript.window(limit=1)).revision


TABLE = (
    Operation(
        method="GET", path=SESSION_PATH + "/revisions", act=list_revisions, query=RevisionQuery,
        answer=RevisionPage,
        summary="List the revisions of a transcript, newest first: what made them, and who.",
    ),
    Operation(
        method="POST", path=SESSION_PATH + "/undo", act=undo_turns, body=UndoRequest,
        answer=TranscriptChange, summary="Take back the newest turns.",
    ),
    Operation(
        method="POST", path=SESSION_PATH + "/redo", act=redo_turns, answer=TranscriptChange,
        summary="Show again what the last undo took back.",
    ),
    Operation(
        method="POST", path=SESSION_PATH + "/restore", act=restore_revision, body=RestoreRequest,
        answer=TranscriptChange, summary="Show what an earlier revision shows.",
    ),
    Operation(
        method="POST", path=SESSION_PATH + "/edit", act=edit_message, body=EditRequest,
        answer=TranscriptChange, summary="Show another message instead of one.",
    ),
    Operation(
        method="POST", path=SESSION_PATH + "/remove", act=remove_message, body=RemoveRequest,
        answer=TranscriptChange, summary="Hide one message.",
    ),
    Operation(
        method="POST", path=SESSION_PATH + "/compact", act=compact_transcript,
        body=CompactRequest, answer=TranscriptChange,
        summary="Show all but the newest turns as a summary.",
    ),
)  # fmt: skip
