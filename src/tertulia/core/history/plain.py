"""Histories that are legal as they are stored, as nearly all are.

One pass over the rows recognises them, without the values that a repair works with. It decides
nothing: if anything would have to be repaired, described, shortened or left out of a turn,
`find_plain_history` returns None, and the general way (`repair`, `window` and `formats`) makes the
history. If it returns a history, the general way returns the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tertulia.core.history.repair import is_legal_call, is_legal_id
from tertulia.core.history.window import HistoryBudget, stable_count
from tertulia.core.message import ASSISTANT, TOOL, USER
from tertulia.core.text.heads import guard_heads

Body = dict[str, Any]

# The turn, the role, the time in microseconds and the body as JSON of a message of no special kind,
# without an author, and stored in one piece.
PlainRow = tuple[int, str, int, str]

# How JSON writes the character NUL, which no model is shown.
_NUL = "\\u0000"

# It refuses unpaired surrogates, which no model is shown either.
_decode = msgspec.json.Decoder(Body).decode


def find_plain_history(
    rows: Sequence[PlainRow],
    first_seq: int,
    budget: HistoryBudget,
    *,
    whole: bool,
    head: Callable[[int], str] | None = None,
) -> list[Body] | None:
    """Return the history of the newest rows in the OpenAI form; None if it has to be made.

    The rows have consecutive numbers from `first_seq`; `whole` is true if they are all there are.
    The budget has no maximum of tokens. `head` returns the line with the time before the messages
    of the user, if there is one.
    """
    first = _find_first_question(rows, budget, whole=whole)
    if first is None:
        return None
    bodies: list[Body] = []
    starts: list[int] = []  # of the turns, in `bodies`
    used_ids: set[str] = set()
    expected_ids: list[str] = []  # of the calls whose results come next
    question_turn = None  # the turn of the message before, if a person wrote it
    try:
        for turn, role, at, text in rows[first:] if first else rows:
            body = _decode(text)
            if role == USER:
                body.pop("message_id", None)  # the platform's, which no model is shown
            content = body["content"]
            is_text = type(content) is str
            if expected_ids:
                is_plain = (
                    role == TOOL
                    and is_text
                    and len(body) == 3
                    and body["tool_call_id"] == expected_ids.pop(0)
                )
            elif len(body) == 3 and role == ASSISTANT:
                question_turn = None
                expected_ids = _read_call_ids(body["tool_calls"], used_ids)
                is_plain = len(expected_ids) > 0 and (is_text or content is None)
            else:
                is_plain = len(body) == 2 and is_text and content and not content.isspace()
                if role != USER:
                    question_turn = None
                    is_plain = is_plain and role == ASSISTANT
                elif question_turn != turn:
                    question_turn = turn
                    starts.append(len(bodies))
            # A character is found much faster than a text, and many texts have no backslash.
            if not is_plain or ("\\" in text and _NUL in text):
                return None
            if head is not None and role == USER:
                body["content"] = head(at) + guard_heads(content)
            bodies.append(body)
    except (ValueError, KeyError, RecursionError):
        return None
    if expected_ids:
        return None
    return _cut(bodies, starts, first_seq + first, budget, whole=whole)


def _find_first_question(
    rows: Sequence[PlainRow], budget: HistoryBudget, *, whole: bool
) -> int | None:
    """Return the index of the first message of a person; what is before it is not shown.

    Return None if older rows have to be read, or if one of these has an unusual role.
    """
    leading_results = 0  # results at the beginning, whose calls were not read
    for index, (_, role, *_) in enumerate(rows):
        if role == USER:
            has_enough = whole or len(rows) - leading_results > budget.messages
            return index if has_enough else None
        if role not in (ASSISTANT, TOOL):
            return None
        if role == TOOL and leading_results == index:
            leading_results += 1
    return None


def _read_call_ids(calls: Any, used_ids: set[str]) -> list[str]:
    """Return the ids of the calls; an empty list if one is not legal, or its id was used."""
    if type(calls) is not list:
        return []
    call_ids = []
    for call in calls:
        if type(call) is not dict or not is_legal_call(call):
            return []
        call_id = call["id"]
        if call_id in used_ids or not is_legal_id(call_id):
            return []
        used_ids.add(call_id)
        call_ids.append(call_id)
    return call_ids


def _cut(
    bodies: list[Body], starts: list[int], first_seq: int, budget: HistoryBudget, *, whole: bool
) -> list[Body] | None:
    """Return the newest turns that fit; None if not even the newest one does."""
    shares: list[float] = []
    for start in reversed(starts):
        share = (len(bodies) - start) / budget.messages
        if share > 1:
            break
        shares.append(share)
    if not shares:
        return None
    count = len(shares)
    if not whole or count < len(starts):
        count = stable_count(shares, [first_seq + start for start in starts])
    return bodies[starts[-count] :]
