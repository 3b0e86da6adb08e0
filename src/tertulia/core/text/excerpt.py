"""Text on one line, cut at a limit: for lists, prompts, errors and logs."""

from __future__ import annotations

import unicodedata
from itertools import takewhile

# Read at most this many times the limit, so that a huge text costs no more than a long one.
_INPUT_FACTOR = 8
_REPR_LENGTH = 78
# The longest emoji have ten code points. A longer run of marks is no character that people write.
_MAX_CHARACTER = 16
_JOINER = "\u200d"


def one_line(text: str, limit: int | None = None) -> str:
    """Return the text with each run of white space as one space, cut at `limit` characters."""
    if limit is None:
        return " ".join(text.split())
    # Most texts have a line's worth of words at their beginning: the rest need not be read.
    line = " ".join(text[: 2 * limit].split())
    if len(line) <= limit and len(text) > 2 * limit:
        line = " ".join(text.split())
    return shorten(line, limit)


def shorten(line: str, limit: int, *, is_cut: bool = False) -> str:
    """Return a line with at most `limit` characters, the last one an ellipsis if it was cut.

    `is_cut` says that the line is the beginning of a longer one already.
    """
    return line if len(line) <= limit and not is_cut else cut(line, limit - 1).rstrip() + "…"


def cut(text: str, limit: int) -> str:
    """Return the first `limit` code points, or fewer if an emoji or an accent would be cut off."""
    limit = max(limit, 0)
    if len(text) <= limit or text[limit].isascii():
        return text[:limit]
    for end in range(limit, max(limit - _MAX_CHARACTER, -1), -1):
        if end == 0 or not _is_inside_character(text, end):
            return text[:end]
    return text[:limit]


def _is_inside_character(text: str, end: int) -> bool:
    """Return whether a reader sees the code points before and after `end` as one character."""
    before, after = text[end - 1], text[end]
    if _JOINER in (before, after):
        return True
    if _is_flag_letter(after):  # two letters are a flag
        letters = takewhile(_is_flag_letter, reversed(text[:end]))
        return sum(1 for _ in letters) % 2 == 1
    # Marks include the selectors of variants; the others are skin tones and the tags of flags.
    is_mark = unicodedata.category(after).startswith("M")
    return is_mark or "\U0001f3fb" <= after <= "\U0001f3ff" or "\U000e0020" <= after <= "\U000e007f"


def _is_flag_letter(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def log_line(text: str, limit: int) -> str:
    """Return the beginning of a text; line breaks and unprintable characters become spaces."""
    head = text[: limit * _INPUT_FACTOR]
    line = one_line("".join(char if char.isprintable() else " " for char in head))
    return shorten(line, limit, is_cut=len(head) < len(text))


def short_repr(value: object) -> str:
    """Return a value as Python writes it, or its type if Python cannot, for an error message."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - too deep, too many digits, or the class of the caller fails
        text = f"<{type(value).__name__}>"
    return shorten(text, _REPR_LENGTH)
