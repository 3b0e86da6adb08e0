"""Shorten tool results and tool calls that are too long for the history given to a model."""

from __future__ import annotations

import json
import re
from typing import Any

from tertulia.core.history.content import Part, flatten_content, parse_object

_OMISSION = "\n[… {left} of {total} characters left out …]\n"
_OMISSION_PATTERN = re.compile(r"\n\[… [0-9]+ of [0-9]+ characters left out …\]\n")


def shorten_content(content: str | list[Part], limit: int | None) -> str | list[Part]:
    """Return the content of a tool result as it is, or its text shortened to the limit."""
    if limit is None:
        return content
    text = flatten_content(content)
    return content if len(text) <= limit else shorten_middle(text, limit)


def shorten_call(call: dict[str, Any], limit: int) -> dict[str, Any]:
    """Return the call with its long arguments shortened; they stay a JSON object."""
    arguments = call["function"]["arguments"]
    if len(arguments) <= limit:
        return call
    fields = parse_object(arguments)
    short_fields = {
        key: shorten_middle(value, limit) if isinstance(value, str) else value
        for key, value in (fields or {}).items()
    }
    short = json.dumps(short_fields, ensure_ascii=False)
    if fields is None or len(short) > 2 * limit:
        short = json.dumps({"shortened": shorten_middle(arguments, limit)}, ensure_ascii=False)
    return {**call, "function": {**call["function"], "arguments": short}}


def shorten_middle(text: str, limit: int) -> str:
    """Return a text cut in the middle, with a note that says how much is left out.

    Its head and its tail stay, because the output of programs is most important there.
    """
    omitted = count_omitted(text, limit)
    if not omitted:
        return text
    head, tail = _kept(limit)
    omission = _OMISSION.format(left=omitted, total=len(text))
    return text[:head] + omission + (text[-tail:] if tail else "")


def is_shortened(short: str, text: str, limit: int) -> bool:
    """Return whether `shorten_middle` can have made `short` of a text with these ends."""
    head, tail = _kept(limit)
    omission = _OMISSION_PATTERN.match(short, head)
    if omission is None or len(text) <= limit:
        return False
    return short[:head] == text[:head] and short[omission.end() :] == text[len(text) - tail :]


def count_omitted(text: str, limit: int) -> int:
    """Return how many characters of a text `shorten_middle` leaves out."""
    return 0 if len(text) <= limit else len(text) - sum(_kept(limit))


def _kept(limit: int) -> tuple[int, int]:
    """Return how many characters of the head and of the tail of a long text stay."""
    keep = max(limit - len(_OMISSION) - 12, 0)
    return keep - keep // 3, keep // 3
