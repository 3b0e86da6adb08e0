"""Formatted text as Discord's Markdown.

Everything that is not formatting is escaped, so that a text is shown as it is; links and Discord's
own marks (`<@id>`, `<#id>`, emojis) stay as they are. Nobody is notified by a mark: each message is
sent with `allowed_mentions` that allow none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tertulia.core.text.markdown import format_parts
from tertulia.core.text.spans import FormattedText, Span, SpanKind, nested_events

MAX_TEXT: Final = 2000

_MARKS: Final[dict[SpanKind, str]] = {
    "bold": "**",
    "italic": "*",
    "underline": "__",
    "strike": "~~",
    "spoiler": "||",
}
# Pieces that are not escaped: addresses, and marks of Discord such as <@1> or <:name:1>.
_VERBATIM = re.compile(r"https?://[^\s<>]+|<(?:@[!&]?\d+|#\d+|a?:\w+:\d+|t:-?\d+(?::\w)?)>")
_SPECIAL = re.compile(r"[\\*_~|`]|\[(?=[^\[\]\n]*\]\()")
# A line that begins so would become a heading, a small line or a quote.
_LINE_START = re.compile(r"^(\s*)(#{1,3} |-# |>>> |> )", re.MULTILINE)
_LANGUAGE = re.compile(r"[A-Za-z0-9_+#.-]{1,40}")
_ZERO_WIDTH: Final = "\u200b"


def format_text(source: str, limit: int = MAX_TEXT) -> list[FormattedText]:
    """Return Markdown as the texts of Discord messages."""
    return format_parts(source, limit, measure)


def measure(part: FormattedText) -> int:
    """Return the length of a message as Discord counts it: in characters, with its markup."""
    return len(render(part))


def render(part: FormattedText) -> str:
    """Return a text as Discord's Markdown."""
    return "".join(_pieces(part))


def escape(text: str) -> str:
    """Return a text in which nothing is read as formatting."""
    pieces, start = [], 0
    for match in _VERBATIM.finditer(text):
        pieces += [_SPECIAL.sub(r"\\\g<0>", text[start : match.start()]), match[0]]
        start = match.end()
    pieces.append(_SPECIAL.sub(r"\\\g<0>", text[start:]))
    return _LINE_START.sub(r"\1\\\2", "".join(pieces))


def _pieces(part: FormattedText) -> Iterator[str]:
    code: Span | None = None
    quotes = 0
    for text, span in nested_events(part):
        if span is None:
            if code is None:
                plain = escape(text)
                yield plain.replace("\n", "\n> ") if quotes else plain
            continue
        is_end = text == "/"
        if code is not None:
            code = None if is_end and span is code else code
        elif span.kind in ("code", "pre"):
            code = span
            block = _code(part.text[span.start : span.end], span)
            yield block.replace("\n", "\n> ") if quotes else block
        elif span.kind == "quote":
            quotes += -1 if is_end else 1
            if not is_end and quotes == 1:
                yield "> "
        else:
            yield _mark(part, span, is_end=is_end)


def _mark(part: FormattedText, span: Span, *, is_end: bool) -> str:
    match span.kind:
        case "link":
            label = part.text[span.start : span.end]
            if label == span.data:
                return ""
            url = (span.data or "").replace(" ", "%20").replace(")", "%29")
            return f"]({url})" if is_end else "["
        case "heading":
            level = int(span.data or "1")
            is_line = span.start == 0 or part.text[span.start - 1] == "\n"
            if level <= 3 and is_line:
                return "" if is_end else f"{'#' * level} "
            return "**"
        case kind:
            return _MARKS[kind]


def _code(text: str, span: Span) -> str:
    if span.kind == "pre":
        language = span.data if span.data and _LANGUAGE.fullmatch(span.data) else ""
        body = text.replace("```", f"``{_ZERO_WIDTH}`").rstrip("\n")
        return f"```{language}\n{body}\n```"
    if "`" not in text:
        return f"`{text}`"
    inner = text.replace("``", f"`{_ZERO_WIDTH}`")
    return f"`` {inner} ``"
