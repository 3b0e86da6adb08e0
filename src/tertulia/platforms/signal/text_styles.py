"""Formatted text as Signal's text styles, in UTF-16 code units.

Signal has no links with a text, so the address stands after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tertulia.core.text.markdown import parse
from tertulia.core.text.spans import FormattedText, Span, SpanKind, moved, utf16_offsets
from tertulia.core.text.split import length, split_formatted

MAX_BYTES: Final = 2000

_STYLES: Final[dict[SpanKind, str]] = {
    "bold": "BOLD",
    "heading": "BOLD",
    "italic": "ITALIC",
    "strike": "STRIKETHROUGH",
    "spoiler": "SPOILER",
    "code": "MONOSPACE",
    "pre": "MONOSPACE",
}


def format_text(source: str, limit: int = MAX_BYTES) -> list[FormattedText]:
    """Return Markdown as the texts of Signal messages."""
    parts = split_formatted(_with_addresses(parse(source)), limit, measure)
    return [part for part in (part.strip() for part in parts) if part.text]


def measure(part: FormattedText) -> int:
    """Return the length of a message as Signal counts it, in bytes."""
    return length(part.text, "bytes")


def styles_of(text: str, spans: Sequence[Span]) -> list[str]:
    """Return the styles of a text as signal-cli takes them: "start:length:STYLE"."""
    if not spans:
        return []
    offsets = utf16_offsets(text)
    return [
        f"{offsets[span.start]}:{offsets[span.end] - offsets[span.start]}:{_STYLES[span.kind]}"
        for span in spans
        if span.kind in _STYLES
    ]


def _with_addresses(formatted: FormattedText) -> FormattedText:
    """Return the text with the address of each link in parentheses after it."""
    additions = []
    for span in formatted.spans:
        label, url = formatted.text[span.start : span.end], span.data or ""
        if span.kind == "link" and label not in (url, url.removeprefix("mailto:")):
            additions.append((span.end, f" ({url})"))
    if not additions:
        return formatted
    additions.sort(key=lambda item: item[0])

    def move(offset: int, *, is_end: bool) -> int:
        before = (text for at, text in additions if at < offset or (at == offset and not is_end))
        return offset + sum(map(len, before))

    pieces, start = [], 0
    for end, addition in additions:
        pieces += [formatted.text[start:end], addition]
        start = end
    spans = (
        moved(span, move(span.start, is_end=False), move(span.end, is_end=True))
        for span in formatted.spans
    )
    return FormattedText("".join([*pieces, formatted.text[start:]]), tuple(spans))
