"""Titles: what a person calls a session, or what is suggested from their first words."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

LENGTH = 100
_SUGGESTED = 60


def one_line(text: str) -> str:
    """A text as a title is kept: one line, nothing invisible."""
    shown = (char for char in text if char.isprintable() or char.isspace())
    return " ".join("".join(shown).split())


def titles_from(said: str) -> Iterator[str]:
    """Titles for a session that began with these words: the first, and the same with a number."""
    line = one_line(said)
    if not line:
        return
    if len(line) > _SUGGESTED:
        cut = line[:_SUGGESTED].rsplit(" ", 1)[0] if " " in line[:_SUGGESTED] else line[:_SUGGESTED]
        line = cut.rstrip(" ,.;:-") + "…"
    yield line
    for number in count(2):
        yield f"{line} ({number})"
