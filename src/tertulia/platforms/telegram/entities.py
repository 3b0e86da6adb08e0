"""Formatted text as Telegram's entities, in UTF-16 code units.

Code has no other formatting in it, so bold text around code is bold before and after it; links
and quotes do not nest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from tertulia.core.text.markdown import format_parts
from tertulia.core.text.spans import FormattedText, Span, SpanKind, utf16_offsets
from tertulia.core.text.split import length

MAX_TEXT: Final = 4096
MAX_CAPTION: Final = 1024

_TYPES: Final[dict[SpanKind, str]] = {
    "bold": "bold",
    "heading": "bold",
    "italic": "italic",
    "underline": "underline",
    "strike": "strikethrough",
    "spoiler": "spoiler",
    "code": "code",
    "pre": "pre",
    "quote": "blockquote",
    "link": "text_link",
}


def format_text(source: str, limit: int = MAX_TEXT) -> list[FormattedText]:
    """Return Markdown as the texts of Telegram messages."""
    return format_parts(source, limit, measure, breaks_mentions=True)


def measure(part: FormattedText) -> int:
    """Return the length of a message as Telegram counts it, or more."""
    return length(part.text, "utf16")


def entities_of(text: str, spans: Sequence[Span]) -> list[dict[str, Any]]:
    """Return the entities of a text, with offsets in UTF-16 code units."""
    if not spans:
        return []
    offsets = utf16_offsets(text)
    links = [span for span in spans if span.kind == "link"]
    # Code that is a link stays a link.
    allowed = [span for span in spans if span.kind != "code" or not _is_inside(span, links)]
    entities = []
    for span in allowed:
        for start, end in _ranges(span, allowed):
            entity: dict[str, Any] = {
                "type": _TYPES[span.kind],
                "offset": offsets[start],
                "length": offsets[end] - offsets[start],
            }
            if span.kind == "link":
                entity["url"] = span.data
            elif span.kind == "pre" and span.data:
                entity["language"] = span.data
            entities.append(entity)
    return entities


def _ranges(span: Span, spans: Sequence[Span]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a span: all of it, or what is not code."""
    start = span.start
    if span.kind not in ("code", "pre", "quote", "link"):
        for code in spans:
            if code.kind in ("code", "pre") and _is_inside(code, [span]):
                if start < code.start:
                    yield start, code.start
                start = max(start, code.end)
    if start < span.end:
        yield start, span.end


def _is_inside(inner: Span, spans: Sequence[Span]) -> bool:
    return any(outer.start <= inner.start and inner.end <= outer.end for outer in spans)
