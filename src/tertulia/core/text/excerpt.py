"""Foreign text as it may stand in an error or a log: one line, and not long."""

from __future__ import annotations

# Nothing behind it comes into view; a huge text should cost no more than a long one.
_REACH = 8


def excerpt(text: str, limit: int) -> str:
    """The beginning of a text, without line breaks and characters that print nothing."""
    kept = text[: limit * _REACH]
    line = " ".join("".join(char if char.isprintable() else " " for char in kept).split())
    return line if len(line) <= limit and len(kept) == len(text) else f"{line[: limit - 1]}…"
