"""The beginning of a foreign text for an error or a log: one short line."""

from __future__ import annotations

# Read at most this many times the limit, so that a huge text costs no more than a long one.
_INPUT_FACTOR = 8


def log_line(text: str, limit: int) -> str:
    """Return the beginning of a text; line breaks and unprintable characters become spaces."""
    head = text[: limit * _INPUT_FACTOR]
    line = " ".join("".join(char if char.isprintable() else " " for char in head).split())
    return line if len(line) <= limit and len(head) == len(text) else f"{line[: limit - 1]}…"
