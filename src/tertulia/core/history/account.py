"""The account of a history: what became of each stored row on its way to the model.

It is computed from the same blocks that the history is rendered from, so the two cannot differ: a
row is shown exactly if one of those blocks has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from tertulia.core.history.content import flatten_content, has_content
from tertulia.core.history.repair import HIDDEN_KINDS, HISTORY_ROLES, Block
from tertulia.core.history.shortening import count_omitted, shorten_call
from tertulia.core.history.window import FittedHistory
from tertulia.core.message import TOOL, USER, Message

Fate = Literal["shown", "mended", "shortened", "cut", "hidden", "summed_up"]

RowId = tuple[int, int]
"""The log and the sequence number of a row."""


class RowFate(msgspec.Struct, frozen=True, kw_only=True):
    """The fate of one row.

    shown       the model gets it as it is stored
    mended      the model gets it repaired, or it was left out because it was damaged (`is_given`)
    shortened   the model gets it without `characters` in the middle
    cut         it did not fit into the budget
    hidden      it is not for the model: a command, or bookkeeping
    summed_up   a summary stands for it
    """

    fate: Fate
    detail: str | None = None
    characters: int = 0
    is_given: bool = False


CUT = RowFate(fate="cut")
SUMMED_UP = RowFate(fate="summed_up")


def account_for(
    rows: Iterable[Message], candidates: Sequence[Block], window: FittedHistory
) -> dict[RowId, RowFate]:
    """Return what became of each row that a history was made from.

    `candidates` are the blocks of all of them, `window` those that fitted, after they were
    rendered: rendering makes the ids of calls unique.
    """
    window_fates = _fates_of(window.blocks, window.result_limit)
    candidate_ids = {row_id for block in candidates for row_id in _row_ids(block)}
    fates: dict[RowId, RowFate] = {}
    for row in rows:
        row_id = row.session, row.seq
        if row_id in window_fates:
            fates[row_id] = window_fates[row_id]
        elif row.kind in HIDDEN_KINDS or row.role not in HISTORY_ROLES:
            fates[row_id] = RowFate(fate="hidden", detail=row.kind or f"the role {row.role}")
        elif row_id in candidate_ids:
            fates[row_id] = CUT
        else:
            fates[row_id] = RowFate(fate="mended", detail=_why_left_out(row))
    return fates


def _fates_of(blocks: Iterable[Block], limit: int | None) -> dict[RowId, RowFate]:
    fates: dict[RowId, RowFate] = {}
    for block in blocks:
        fates[block.row.session, block.row.seq] = _fate_of_block(block, limit)
        for result in block.results:
            if result.row is not None:
                row_id = result.row.session, result.row.seq
                fates[row_id] = _fate_of_result(result.row, result.call_id, limit)
    return fates


def _fate_of_block(block: Block, limit: int | None) -> RowFate:
    missing = sum(result.row is None for result in block.results)
    value = block.row.body.get("tool_calls")
    stored_calls = value if isinstance(value, list) else [value]
    if missing:
        detail = "a call has no result" if missing == 1 else f"{missing} calls have no result"
        return RowFate(fate="mended", detail=detail, is_given=True)
    if any(all(call is not stored for stored in stored_calls) for call in block.calls):
        return RowFate(fate="mended", detail="a call was put right", is_given=True)
    body = block.row.body
    if block.row.role == USER and not body.get("media") and not has_content(body.get("content")):
        return RowFate(fate="mended", detail="an empty message", is_given=True)
    omitted = (
        0 if limit is None else sum(_count_omitted_arguments(call, limit) for call in block.calls)
    )
    if omitted:
        return RowFate(fate="shortened", characters=omitted, is_given=True)
    return RowFate(fate="shown", is_given=True)


def _fate_of_result(row: Message, call_id: str, limit: int | None) -> RowFate:
    if limit is not None:
        omitted = count_omitted(flatten_content(row.body.get("content")), limit)
        if omitted:
            return RowFate(fate="shortened", characters=omitted, is_given=True)
    if row.body.get("tool_call_id") != call_id:
        return RowFate(fate="mended", detail="it was assigned to its call", is_given=True)
    return RowFate(fate="shown", is_given=True)


def _count_omitted_arguments(call: dict[str, object], limit: int) -> int:
    return max(0, _arguments_length(call) - _arguments_length(shorten_call(call, limit)))


def _arguments_length(call: dict[str, object]) -> int:
    function = call.get("function")
    return len(str(function.get("arguments", ""))) if isinstance(function, dict) else 0


def _why_left_out(row: Message) -> str:
    if row.role == TOOL:
        return "left out: no call is without a result"
    return "left out: it is empty"


def _row_ids(block: Block) -> Iterable[RowId]:
    yield block.row.session, block.row.seq
    for result in block.results:
        if result.row is not None:
            yield result.row.session, result.row.seq
