"""A long text in parts that a platform takes.

A part ends where a reader would pause: between paragraphs, else lines, else sentences, else words.
A code block stays whole if it fits into one part; one that does not is closed at the end of a part
and opened again in the next, so that each part looks right by itself.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final, NamedTuple

from tertulia.core.platform import LengthUnit

# What follows the marks names the language; a whole line of prose does not.
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})([^\n`]{0,30})$", re.MULTILINE)
# Where to end a part, the best first: after a paragraph, a line, a sentence, a word.
_PAUSES: Final = (
    re.compile(r"\n[ \t]*\n+"),
    re.compile(r"\n"),
    re.compile(r"(?<=[.!?…])[ \t]+|(?<=[。！？])"),
    re.compile(r"[ \t]+"),
)
# A part that ends earlier than this would make the next ones many.
_LEAST: Final = 0.4
_JOINERS: Final = "\u200d\ufe0e\ufe0f"  # the joiner of emoji, and the choosers of their form


class _Fence(NamedTuple):
    """A code block that is open: how it was opened, and how it is closed."""

    opening: str
    closing: str


def split(text: str, limit: int | None, unit: LengthUnit = "characters") -> list[str]:
    """The text in parts that are no longer than the limit; none if there is nothing to see."""
    if not text.strip():
        return []
    if limit is None or length(text, unit) <= limit:
        return [text]
    parts: list[str] = []
    rest, fence = text, None
    while rest.strip():
        part, rest, fence = _part(rest, fence, limit, unit)
        if part.strip():
            parts.append(part)
    return parts


def length(text: str, unit: LengthUnit) -> int:
    """How long a platform finds a text."""
    if unit == "characters":
        return len(text)
    # A lone surrogate counts as what it will be replaced by.
    encoded = text.encode("utf-8" if unit == "bytes" else "utf-16-le", "replace")
    return len(encoded) if unit == "bytes" else len(encoded) // 2


def _part(
    rest: str, fence: _Fence | None, limit: int, unit: LengthUnit
) -> tuple[str, str, _Fence | None]:
    """The next part, what is left after it, and the code block that is open there."""
    opening = f"{fence.opening}\n" if fence else ""
    if length(opening + rest, unit) <= limit:
        return opening + rest, "", None
    room = limit - length(opening, unit)
    cut = _cut(rest, _fits(rest, room, unit), fence)
    still_open = _open_after(rest[:cut], fence)
    if still_open is not None:
        reserve = length(f"\n{still_open.closing}", unit)
        if room - reserve < limit // 2:  # no room for such ornaments
            cut = _cut(rest, _fits(rest, limit, unit), None)
            return rest[:cut].rstrip(), rest[cut:].lstrip("\n"), None
        cut = _cut(rest, _fits(rest, room - reserve, unit), fence)
        still_open = _open_after(rest[:cut], fence)
    part, left = opening + rest[:cut].rstrip(), rest[cut:]
    if still_open is not None:
        return f"{part}\n{still_open.closing}", left.removeprefix("\n"), still_open
    return part, left.lstrip("\n"), None


def _fits(text: str, room: int, unit: LengthUnit) -> int:
    """How many characters from the start fit; at least one, or nothing would ever end."""
    low, high = 1, min(len(text), max(room, 1))
    while low < high:
        middle = (low + high + 1) // 2
        if length(text[:middle], unit) <= room:
            low = middle
        else:
            high = middle - 1
    return low


def _cut(text: str, most: int, fence: _Fence | None) -> int:
    """Where to end a part of at most so many characters."""
    if most >= len(text):
        return len(text)
    before_block = _block_start(text, most, fence)
    if before_block is not None:
        return before_block
    window = text[:most]
    for pause in _PAUSES:
        ends = [found.end() for found in pause.finditer(window)]
        if ends and ends[-1] >= most * _LEAST:
            return ends[-1]
    return _whole_character(text, most)


def _block_start(text: str, most: int, fence: _Fence | None) -> int | None:
    """Where the code block begins that does not end within a part and would fit into the next."""
    start, is_open = None, fence is not None
    for found in _FENCE.finditer(text):
        if found.start() >= most:
            break
        is_open = not is_open
        start = found.start() if is_open else None
    if start is None or start == 0:
        return None
    end = next((f.end() for f in _FENCE.finditer(text, start + 1)), None)
    fits_whole = end is not None and end - start <= most
    return start if fits_whole or start >= most * _LEAST else None


def _open_after(text: str, fence: _Fence | None) -> _Fence | None:
    """The code block that is open at the end of a text."""
    for found in _FENCE.finditer(text):
        if fence is None:
            mark = found[1]
            fence = _Fence(found[0].strip(), mark)
        elif found[1].startswith(fence.closing) and not found[2].strip():
            fence = None
    return fence


def _whole_character(text: str, most: int) -> int:
    """Not between a letter and its accent, nor within an emoji of several parts."""
    cut = most
    while cut > max(1, most - 32) and (
        unicodedata.combining(text[cut]) or text[cut] in _JOINERS or text[cut - 1] == "\u200d"
    ):
        cut -= 1
    return cut if cut > 1 else most
