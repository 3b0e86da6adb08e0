"""Formatted text as WhatsApp writes it: `*bold*`, `_italic_`, `~strike~`, code and quotes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tertulia.core.text.markdown import format_parts
from tertulia.core.text.spans import FormattedText, Span, nested_events
from tertulia.core.text.split import length

MAX_TEXT: Final = 4096
MAX_CAPTION: Final = 1024

_MARKS: Final = {"bold": "*", "heading": "*", "italic": "_", "strike": "~", "code": "`"}
# A private character stands for the end of a quote until all lines are written.
_QUOTE_START: Final = "\ue000"
_QUOTE_END: Final = "\ue001"


def format_text(source: str, limit: int = MAX_TEXT) -> list[FormattedText]:
    """Return Markdown as the texts of WhatsApp messages."""
    return format_parts(source, limit, _measure)


def to_markup(text: str, spans: Sequence[Span]) -> str:
    """Return formatted text with the marks of WhatsApp; a link has its URL after its text."""
    pieces: list[str] = []
    open_marks: list[str] = []
    is_code = False
    for piece, span in nested_events(FormattedText(text, tuple(spans))):
        if span is None:
            pieces.append(piece)
        elif span.kind == "pre":
            is_code = piece != "/"
            pieces.append("```" if _is_one_line(text, span) else "\n```" if piece else "```\n")
        elif is_code:
            continue  # code has no other format in it
        elif span.kind == "link":
            pieces.append(_url_after(text, span) if piece == "/" else "")
        elif span.kind == "quote":
            pieces.append(_QUOTE_END if piece == "/" else _QUOTE_START)
        else:
            mark = _MARKS.get(span.kind, "")
            pieces.append(_mark(mark, open_marks, is_end=piece == "/"))
    return _quoted("".join(pieces))


def _mark(mark: str, open_marks: list[str], *, is_end: bool) -> str:
    """Return a mark, or nothing inside a text that has the same mark already."""
    if is_end:
        open_marks.remove(mark)
        return "" if mark in open_marks else mark
    open_marks.append(mark)
    return "" if open_marks.count(mark) > 1 else mark


def _is_one_line(text: str, span: Span) -> bool:
    return "\n" not in text[span.start : span.end]


def _url_after(text: str, span: Span) -> str:
    label, url = text[span.start : span.end], span.data or ""
    return "" if label in (url, url.removeprefix("mailto:")) else f" ({url})"


def _quoted(text: str) -> str:
    while _QUOTE_START in text:
        before, _, rest = text.partition(_QUOTE_START)
        quote, _, after = rest.partition(_QUOTE_END)
        text = f"{before}> {quote.replace(chr(10), f'{chr(10)}> ')}{after}"
    return text.replace(_QUOTE_END, "")


def _measure(part: FormattedText) -> int:
    return length(to_markup(part.text, part.spans), "utf16")
