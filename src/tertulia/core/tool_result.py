"""The length of tool results: what a model is shown of one, and what is stored of it.

A model is shown the head and the tail of a long result. The message contains that, so a history
needs nothing else; the whole text is a field of the message beside it, for people.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from tertulia.core.history.content import Part, flatten_content
from tertulia.core.history.shortening import is_shortened, shorten_middle

MAX_SHOWN: Final = 40_000
MAX_STORED: Final = 1_000_000
# The field of a message with the whole text of its shortened result.
WHOLE: Final = "whole"


class LimitedResult(NamedTuple):
    """The content that a model is shown, and the whole text if that is longer."""

    content: str | list[Part]
    whole: str | None = None


def limit_result(content: str | list[Part]) -> LimitedResult:
    """Return a result with its text shortened, if it is too long for a model."""
    if isinstance(content, str):
        if len(content) <= MAX_SHOWN:
            return LimitedResult(content)
        return LimitedResult(
            shorten_middle(content, MAX_SHOWN), shorten_middle(content, MAX_STORED)
        )
    text = flatten_content([part for part in content if _is_text(part)])
    if len(text) <= MAX_SHOWN:
        return LimitedResult(content)
    others = [part for part in content if not _is_text(part)]
    excerpt = {"type": "text", "text": shorten_middle(text, MAX_SHOWN)}
    return LimitedResult([excerpt, *others], shorten_middle(text, MAX_STORED))


def whole_text(message: Mapping[str, Any]) -> str | None:
    """Return the whole text of a shortened result, or None if the message does not have it.

    Messages of API clients may have a field of that name, too. It counts only if it begins and ends
    as the content does, so that nothing else is shown in place of the content.
    """
    whole, content = message.get(WHOLE), message.get("content")
    if isinstance(content, list):
        content = next((part["text"] for part in content if _is_text(part)), None)
    if not isinstance(whole, str) or not isinstance(content, str):
        return None
    return whole if is_shortened(content, whole, MAX_SHOWN) else None


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(part.get("text"), str)
