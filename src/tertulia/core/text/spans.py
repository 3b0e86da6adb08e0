"""Text with spans: the form between the agent's Markdown and what a platform shows.

`markdown.py` makes it of Markdown; a platform renders the spans in its own way, with `to_html` or
by itself. A platform without formatting sends `to_plain`, and nothing of it is lost.

Offsets count characters, as Python does. Two spans of a text are apart, or one lies inside the
other; they never cross. A platform that counts in UTF-16 code units converts with `utf16_offsets`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from html import escape
from typing import Final, Literal

import msgspec

SpanKind = Literal[
    "bold", "italic", "underline", "strike", "spoiler", "code", "pre", "link", "quote", "heading"
]

# Put between "@" and a name, it is invisible, breaks no line, and no platform reads a mention.
WORD_JOINER: Final = "\u2060"
_MENTION = re.compile(r"@(?<!\w@)(?=\w)")  # begins with "@": such a search is fast
_TAGS: Final[dict[SpanKind, str]] = {
    "bold": "strong",
    "italic": "em",
    "underline": "u",
    "spoiler": "span data-mx-spoiler",
    "strike": "del",
    "code": "code",
    "quote": "blockquote",
}
# The languages that highlighters name; anything else could break out of the class name.
_LANGUAGE = re.compile(r"[A-Za-z0-9_+#.-]{1,40}")


class Span(msgspec.Struct, frozen=True):
    """The format of the characters from `start` up to `end`, counted in code points.

    `data` is the address of a link, the language of a `pre` block, or the level of a heading.
    """

    kind: SpanKind
    start: int
    end: int
    data: str | None = None


class FormattedText(msgspec.Struct, frozen=True):
    """A text and its spans: outer before inner ones, otherwise by their start."""

    text: str
    spans: tuple[Span, ...] = ()

    def slice(self, start: int, end: int) -> FormattedText:
        """Return the part from `start` to before `end`, with the spans that reach into it."""
        spans = (
            moved(span, max(span.start, start) - start, min(span.end, end) - start)
            for span in self.spans
            if max(span.start, start) < min(span.end, end)
        )
        return FormattedText(self.text[start:end], tuple(spans))

    def strip(self) -> FormattedText:
        """Return the text without blanks at its ends."""
        start = len(self.text) - len(self.text.lstrip())
        return self.slice(start, max(start, len(self.text.rstrip())))

    @classmethod
    def sorted(cls, text: str, spans: Iterable[Span]) -> FormattedText:
        """Return a text with the spans in order; of equal ranges the first given is the outer."""
        in_order = sorted(spans, key=lambda span: (span.start, -span.end))
        return cls(text, tuple(span for span in in_order if span.start < span.end))


def moved(span: Span, start: int, end: int) -> Span:
    """Return the same format for other characters."""
    return Span(span.kind, start, end, span.data)


def utf16_offsets(text: str) -> list[int]:
    """Return for each character, and for the end, its offset in UTF-16 code units."""
    offsets, offset = [0], 0
    for character in text:
        offset += 2 if character > "\uffff" else 1
        offsets.append(offset)
    return offsets


def nested_events(formatted: FormattedText) -> Iterator[tuple[str, Span | None]]:
    """Yield the text in pieces between the beginnings and ends of its spans.

    A piece comes as (text, None), the beginning of a span as ("", span), its end as ("/", span).
    """
    position, open_spans = 0, list[Span]()

    def close_until(limit: int) -> Iterator[tuple[str, Span | None]]:
        nonlocal position
        while open_spans and open_spans[-1].end <= limit:
            span = open_spans.pop()
            if position < span.end:
                yield formatted.text[position : span.end], None
                position = span.end
            yield "/", span

    for span in formatted.spans:
        yield from close_until(span.start)
        if position < span.start:
            yield formatted.text[position : span.start], None
            position = span.start
        open_spans.append(span)
        yield "", span
    yield from close_until(len(formatted.text))
    if position < len(formatted.text):
        yield formatted.text[position:], None


def break_mentions(formatted: FormattedText) -> FormattedText:
    """Return the text with each "@name" broken, so that no platform notifies that person.

    Names in code stay: no platform looks for mentions there.
    """
    code = [span for span in formatted.spans if span.kind in ("code", "pre")]
    cuts = [
        match.end()
        for match in _MENTION.finditer(formatted.text)
        if not any(span.start < match.end() <= span.end for span in code)
    ]
    if not cuts:
        return formatted
    pieces = [
        formatted.text[start:end]
        for start, end in zip([0, *cuts], [*cuts, len(formatted.text)], strict=True)
    ]

    def move(offset: int) -> int:
        return offset + bisect_left(cuts, offset)

    spans = (moved(span, move(span.start), move(span.end)) for span in formatted.spans)
    return FormattedText(WORD_JOINER.join(pieces), tuple(spans))


def to_html(formatted: FormattedText) -> str:
    """Return the text as HTML with the few tags that chat apps accept."""
    pieces: list[str] = []
    is_preformatted = 0
    for text, span in nested_events(formatted):
        if span is None:
            escaped = escape(text)
            pieces.append(escaped if is_preformatted else escaped.replace("\n", "<br>"))
            continue
        is_end = text == "/"
        if span.kind == "pre":
            is_preformatted += -1 if is_end else 1
        pieces.append(_end_tag(span) if is_end else _start_tag(span))
    return "".join(pieces)


def _start_tag(span: Span) -> str:
    match span.kind:
        case "pre" if span.data and _LANGUAGE.fullmatch(span.data):
            return f'<pre><code class="language-{escape(span.data)}">'
        case "pre":
            return "<pre><code>"
        case "link":
            return f'<a href="{escape(span.data or "")}">'
        case "heading":
            return f"<h{span.data}>"
        case kind:
            return f"<{_TAGS[kind]}>"


def _end_tag(span: Span) -> str:
    match span.kind:
        case "pre":
            return "</code></pre>"
        case "link":
            return "</a>"
        case "heading":
            return f"</h{span.data}>"
        case kind:
            return f"</{_TAGS[kind].partition(' ')[0]}>"


def to_plain(formatted: FormattedText) -> str:
    """Return the text alone, with the URL of each link after its text."""
    pieces: list[str] = []
    for text, span in nested_events(formatted):
        if span is None:
            pieces.append(text)
        elif text == "/" and span.kind == "link":
            label = formatted.text[span.start : span.end]
            url = span.data or ""
            if label not in (url, url.removeprefix("mailto:")):
                pieces.append(f" ({url})")
    return "".join(pieces)
