"""Splitting a long text into parts within a platform's length limit.

A part ends where a reader would pause: between paragraphs, else lines, else sentences, else words.
A code block stays whole if it fits into one part; one that does not is closed at the end of a part
and opened again in the next, so that each part is rendered correctly by itself.

`split` works on Markdown as it is, for platforms that render it themselves; `split_formatted` on
text with spans, after rendering.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from tertulia.core.platform import LengthUnit
from tertulia.core.text.spans import FormattedText, Span

# The text after the marks is the language; a whole line of prose there means that it is no fence.
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})([^\n`]{0,30})$", re.MULTILINE)
# The positions where a part may end, the best first: after a paragraph, line, sentence, word.
_PAUSES: Final = (
    re.compile(r"\n[ \t]*\n+"),
    re.compile(r"\n"),
    re.compile(r"(?<=[.!?…])[ \t]+|(?<=[。！？])"),
    re.compile(r"[ \t]+"),
)
# The minimum fill of a part: ending parts earlier would make too many of them.
_MIN_FILL: Final = 0.4
_JOINERS: Final = "\u200d\ufe0e\ufe0f"  # the emoji joiner, and the variation selectors

Measure = Callable[[FormattedText], int]
"""Returns the length of a text as a platform counts it, once it is rendered."""


class _Fence(NamedTuple):
    """An open code block: its opening line, and the line that closes it."""

    opening: str
    closing: str


def split(text: str, limit: int | None, unit: LengthUnit = "characters") -> list[str]:
    """Return the text in parts within the limit; no part if the text is blank."""
    if not text.strip():
        return []
    if limit is None or length(text, unit) <= limit:
        return [text]
    parts: list[str] = []
    rest, fence = text, None
    while rest.strip():
        part, rest, fence = _take_part(rest, fence, limit, unit)
        if part.strip():
            parts.append(part)
    return parts


def length(text: str, unit: LengthUnit) -> int:
    """Return the length of a text in the platform's unit."""
    if unit == "characters":
        return len(text)
    # An unpaired surrogate counts as its replacement character.
    encoded = text.encode("utf-8" if unit == "bytes" else "utf-16-le", "replace")
    return len(encoded) if unit == "bytes" else len(encoded) // 2


def _take_part(
    rest: str, fence: _Fence | None, limit: int, unit: LengthUnit
) -> tuple[str, str, _Fence | None]:
    """Return the next part, the text after it, and the code block that is open there."""
    opening = f"{fence.opening}\n" if fence else ""
    if length(opening + rest, unit) <= limit:
        return opening + rest, "", None
    room = limit - length(opening, unit)
    cut = _find_end(rest, _count_fitting(rest, room, unit), fence)
    still_open = _open_fence_after(rest[:cut], fence)
    if still_open is not None:
        reserve = length(f"\n{still_open.closing}", unit)
        if room - reserve < limit // 2:  # too small to close and reopen code blocks
            cut = _find_end(rest, _count_fitting(rest, limit, unit), None)
            return rest[:cut].rstrip(), rest[cut:].lstrip("\n"), None
        cut = _find_end(rest, _count_fitting(rest, room - reserve, unit), fence)
        still_open = _open_fence_after(rest[:cut], fence)
    part, left = opening + rest[:cut].rstrip(), rest[cut:]
    if still_open is not None:
        return f"{part}\n{still_open.closing}", left.removeprefix("\n"), still_open
    return part, left.lstrip("\n"), None


def _count_fitting(text: str, room: int, unit: LengthUnit) -> int:
    """Return how many characters from the start fit; at least one, so that splitting ends."""
    low, high = 1, min(len(text), max(room, 1))
    while low < high:
        middle = (low + high + 1) // 2
        if length(text[:middle], unit) <= room:
            low = middle
        else:
            high = middle - 1
    return low


def _find_end(text: str, most: int, fence: _Fence | None) -> int:
    """Return the end of a part of at most `most` characters."""
    if most >= len(text):
        return len(text)
    before_block = _start_of_moved_block(text, most, fence)
    if before_block is not None:
        return before_block
    window = text[:most]
    for pause in _PAUSES:
        ends = [match.end() for match in pause.finditer(window)]
        if ends and ends[-1] >= most * _MIN_FILL:
            return ends[-1]
    return _end_of_character(text, most)


def _start_of_moved_block(text: str, most: int, fence: _Fence | None) -> int | None:
    """Return the start of a code block that should move to the next part, or None.

    It does not end within this part, and it fits into the next or starts late in this one.
    """
    start, is_open = None, fence is not None
    for match in _FENCE.finditer(text):
        if match.start() >= most:
            break
        is_open = not is_open
        start = match.start() if is_open else None
    if start is None or start == 0:
        return None
    end = next((match.end() for match in _FENCE.finditer(text, start + 1)), None)
    fits_whole = end is not None and end - start <= most
    return start if fits_whole or start >= most * _MIN_FILL else None


def _open_fence_after(text: str, fence: _Fence | None) -> _Fence | None:
    """Return the code block that is open at the end of a text, or None."""
    for match in _FENCE.finditer(text):
        if fence is None:
            fence = _Fence(match[0].strip(), match[1])
        elif match[1].startswith(fence.closing) and not match[2].strip():
            fence = None
    return fence


def _end_of_character(text: str, most: int) -> int:
    """Return an end that does not separate a letter from its accent or split an emoji."""
    cut = most
    while cut > max(1, most - 32) and (
        unicodedata.combining(text[cut]) or text[cut] in _JOINERS or text[cut - 1] == "\u200d"
    ):
        cut -= 1
    return cut if cut > 1 else most


def split_formatted(
    formatted: FormattedText, limit: int | None, measure: Measure
) -> list[FormattedText]:
    """Return a text in parts within the limit, which together are the text.

    A part ends inside a span only if the span by itself is longer than the limit; then both parts
    have their piece of it.
    """
    if limit is None or measure(formatted) <= limit:
        return [formatted] if formatted.text else []
    parts: list[FormattedText] = []
    start = 0
    while start < len(formatted.text):
        end = _find_formatted_end(formatted, start, limit, measure)
        parts.append(formatted.slice(start, end))
        start = end
    return parts


def _find_formatted_end(formatted: FormattedText, start: int, limit: int, measure: Measure) -> int:
    """Return the end of the part that begins at `start`."""

    def fits(first: int, end: int) -> bool:
        return measure(formatted.slice(first, end)) <= limit

    text = formatted.text
    most = _last_fitting(start, min(len(text), start + limit), fits)
    if most >= len(text):
        return most
    least = start + int((most - start) * _MIN_FILL)
    # A span that begins with the part and crosses its end does not fit into any part.
    later = [span for span in formatted.spans if start < span.start < most]
    whole = [span for span in later if span.end > least and fits(span.start, span.end)]
    for span in later:
        if span.kind == "pre" and span.start >= least and span.end > most and span not in whole:
            return span.start  # a long code block begins in a part of its own
    for pause in _PAUSES:
        ends = [match.end() for match in pause.finditer(text, start, most)]
        allowed = (end for end in reversed(ends) if end >= least and not _span_around(end, whole))
        if (end := next(allowed, None)) is not None:
            return end
    end = start + _end_of_character(text[start : most + 1], most - start)
    around = _span_around(end, whole)
    return around.start if around is not None else end


def _span_around(position: int, spans: Sequence[Span]) -> Span | None:
    """Return the outermost of the spans that a cut at this position would divide, or None."""
    return next((span for span in spans if span.start < position < span.end), None)


def _last_fitting(start: int, high: int, fits: Callable[[int, int], bool]) -> int:
    """Return the last end that fits; at least one character, so that splitting ends."""
    low = start + 1
    while low < high:
        middle = (low + high + 1) // 2
        if fits(start, middle):
            low = middle
        else:
            high = middle - 1
    return low
