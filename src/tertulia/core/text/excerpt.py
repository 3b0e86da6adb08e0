"""Text on one line, cut at a limit: for lists, prompts, errors and logs."""

from __future__ import annotations

# Read at most this many times the limit, so that a huge text costs no more than a long one.
_INPUT_FACTOR = 8
_REPR_LENGTH = 78


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
    return line if len(line) <= limit and not is_cut else line[: limit - 1].rstrip() + "…"


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
