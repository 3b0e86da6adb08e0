"""Texts of Slack: what people wrote as plain text, what the agent wrote as Slack's Markdown.

A message goes as `markdown_text` if it is formatted, else as `text`. In neither may the agent's
words become a mention: `<!…>`, `<@…>` and `<#…>` are broken, and so is every "@name".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from tertulia.core.text.markdown import format_parts
from tertulia.core.text.spans import WORD_JOINER, FormattedText, Span, nested_events, to_plain

# Slack refuses more than 12,000 characters; how it counts is not documented.
MAX_MARKDOWN: Final = 11_500
MAX_TEXT: Final = 4_000

_TOKEN = re.compile(r"<([^<>\n]+)>")
_MENTION = re.compile(r"<(?=[!@#])")
_BACKTICKS = re.compile(r"`+")
# Characters that would begin formatting; a "_" inside a word does not.
_SPECIAL = re.compile(r"[\\*~`\[\]]|(?<!\w)_|_(?!\w)")
# Lines that would become a heading, a quote, a list or a rule.
_LINE_START = re.compile(r"^([ \t]*)([#>+-]|\d{1,9}(?=[.)]))", re.MULTILINE)
_MARKS: Final = {"bold": "**", "italic": "_", "strike": "~~"}


# -- what people wrote


def read_text(text: str, *, own_id: str, own_name: str) -> str:
    """Return a text of Slack as the person wrote it: escapes undone, links and names readable.

    The mention of another person stays `<@U…>`, because only the id is certain.
    """
    pieces, position = [], 0
    for match in _TOKEN.finditer(text):
        pieces += [text[position : match.start()], _readable(match[1], own_id, own_name)]
        position = match.end()
    return unescape("".join([*pieces, text[position:]]))


def unescape(text: str) -> str:
    """Return a text without the three escapes of Slack."""
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _readable(token: str, own_id: str, own_name: str) -> str:
    target, _, label = token.partition("|")
    if target.startswith("@"):
        return f"@{own_name}" if target[1:] == own_id else f"<{target}>"
    if target.startswith("#"):
        return f"#{label}" if label else f"<{target}>"
    if target.startswith("!"):
        name = label or target[1:].partition("^")[0]
        return name if name.startswith("@") or "^" in target else f"@{name}"
    address = target.removeprefix("mailto:").removeprefix("tel:")
    bare = re.sub(r"^https?://", "", target).rstrip("/")
    if not label or label.rstrip("/") in (target, address, bare):
        return address
    return f"{label} ({address})"


# -- what the agent wrote


def format_text(source: str, limit: int = MAX_MARKDOWN) -> list[FormattedText]:
    """Return Markdown as the texts of Slack messages."""
    return format_parts(source, limit, _measure, breaks_mentions=True)


def to_markdown(text: str, spans: Sequence[Span]) -> str:
    """Return formatted text as the Markdown that Slack reads, without any mention."""
    pieces: list[str] = []
    code: list[Span] = []
    for piece, span in nested_events(FormattedText(text, tuple(_outside_blocks(spans)))):
        if span is None:
            pieces.append(piece if code else _escape_markdown(piece))
            continue
        is_end = piece == "/"
        if span.kind in ("code", "pre"):
            code = [] if is_end else [span]
        pieces.append(_mark(span, text[span.start : span.end], is_end=is_end))
    return break_mentions(_quoted("".join(pieces)))


def to_text(text: str) -> str:
    """Return a text for the parameter `text`, in which nothing is formatting or a mention."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def plain_of(text: str, spans: Sequence[Span]) -> str:
    """Return formatted text without its format, for the parameter `text`."""
    return to_text(to_plain(FormattedText(text, tuple(spans))))


def break_mentions(text: str) -> str:
    """Return a text in which no `<!…>`, `<@…>` or `<#…>` is a mention."""
    return _MENTION.sub(f"<{WORD_JOINER}", text)


def _measure(part: FormattedText) -> int:
    return len(to_markdown(part.text, part.spans))


# Private characters stand for the quotes until all lines are written: a quote marks every line.
_QUOTE_START: Final = "\ue000"
_QUOTE_END: Final = "\ue001"


def _mark(span: Span, content: str, *, is_end: bool) -> str:
    match span.kind:
        case "code":
            fence = _fence(content, 1)
            blank = " " if content.startswith("`") or content.endswith("`") else ""
            return f"{blank}{fence}" if is_end else f"{fence}{blank}"
        case "pre":
            fence = _fence(content, 3)
            return f"\n{fence}" if is_end else f"{fence}{_language(span)}\n"
        case "link":
            return f"]({_url(span.data or '')})" if is_end else "["
        case "heading":
            return "" if is_end else f"{'#' * _level(span)} "
        case "quote":
            return _QUOTE_END if is_end else _QUOTE_START
        case kind:
            return _MARKS.get(kind, "")


def _fence(content: str, least: int) -> str:
    longest = max((len(ticks) for ticks in _BACKTICKS.findall(content)), default=0)
    return "`" * max(least, longest + 1 if longest >= least else least)


def _language(span: Span) -> str:
    return span.data if span.data and re.fullmatch(r"[\w+#.-]{1,40}", span.data) else ""


def _level(span: Span) -> int:
    return int(span.data) if span.data in ("1", "2", "3", "4", "5", "6") else 1


def _url(url: str) -> str:
    return re.sub(r"[\s()<>]", lambda match: f"%{ord(match[0]):02X}", url)


def _escape_markdown(text: str) -> str:
    escaped = _SPECIAL.sub(lambda match: f"\\{match[0]}", text)
    return _LINE_START.sub(_escape_line_start, escaped)


def _escape_line_start(match: re.Match[str]) -> str:
    if match[2].isdigit():
        return match[0]  # a number that begins a line is shown as a list, with the same number
    return f"{match[1]}\\{match[2]}"


def _quoted(text: str) -> str:
    """Return the text with a mark before each line of its quotes."""
    while _QUOTE_START in text:
        before, _, rest = text.partition(_QUOTE_START)
        quote, _, after = rest.partition(_QUOTE_END)
        text = f"{before}> {quote.replace(chr(10), f'{chr(10)}> ')}{after}"
    return text.replace(_QUOTE_END, "")


def _outside_blocks(spans: Sequence[Span]) -> list[Span]:
    """Return the spans without those inside a code block, which shows every mark as it is."""
    blocks = [span for span in spans if span.kind == "pre"]
    return [
        span
        for span in spans
        if span in blocks
        or not any(block.start <= span.start and span.end <= block.end for block in blocks)
    ]
