"""Session titles: as a person writes them, or suggested from their first message."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from tertulia.core.text.excerpt import cut, one_line

MAX_LENGTH = 100
_SUGGESTED_LENGTH = 60


def title_line(text: str) -> str:
    """Return the text as a title is stored: one line, invisible characters removed."""
    return one_line("".join(char for char in text if char.isprintable() or char.isspace()))


def suggest_titles(text: str) -> Iterator[str]:
    """Yield titles for a session with this first message: the text, then the same with numbers."""
    line = title_line(text)
    if not line:
        return
    if len(line) > _SUGGESTED_LENGTH:
        beginning = cut(line, _SUGGESTED_LENGTH).rsplit(" ", 1)[0]  # to a space, if there is one
        line = beginning.rstrip(" ,.;:-") + "…"
    yield line
    for number in count(2):
        yield f"{line} ({number})"
