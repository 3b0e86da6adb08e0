"""The length of tool results: what a model is shown of one, and what is stored of it.

A model is shown the head and the tail of a long result. The message contains that, so a history
needs nothing else; the whole text is a field of the message beside it, for people.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from tertulia.core.history.content import Part, flatten_content
from tertulia.core.history.shortening import shorten_middle

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
        return LimitedResult(shorten_middle(content, MAX_SHOWN), _cut(content))
    text = flatten_content([part for part in content if _is_text(part)])
    if len(text) <= MAX_SHOWN:
        return LimitedResult(content)
    others = [part for part in content if not _is_text(part)]
    excerpt = {"type": "text", "text": shorten_middle(text, MAX_SHOWN)}
    return LimitedResult([excerpt, *others], _cut(text))


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(part.get("text"), str)


def _cut(text: str) -> str:
    if len(text) <= MAX_STORED:
        return text
    return f"{text[:MAX_STORED]}\n[… {len(text) - MAX_STORED:,} more characters were left out]"
