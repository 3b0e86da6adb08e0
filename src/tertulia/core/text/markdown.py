"""Markdown of an agent, as text with spans.

CommonMark with tables and strikethrough, and a line break stays one. Headings with underlines,
reference links and HTML are off: agents rarely mean them, and read as text nothing of them is lost.
Nothing else is lost either:

- a link keeps its URL in its span; a URL that is not safe to follow stands in parentheses after
  the text;
- a bullet becomes "•", a number stays, a table becomes aligned lines or cells with "|" between;
- a text that is nested deeper than any reader could follow, or is huge, is not formatted at all
  (decision 0014).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Final

from tertulia.core.text.spans import (
    FormattedText,
    Span,
    SpanKind,
    break_mentions,
    moved,
    to_plain,
)
from tertulia.core.text.split import Measure, split_formatted
from tertulia.core.text.storable import storable

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

# Links elsewhere could ping people (tg://user?id=…) or start programs.
LINK_SCHEMES: Final = ("https://", "http://", "mailto:")
_MAX_LENGTH: Final = 100_000
# The parser's time grows with the square of their number: 5,000 take 0.05 s.
_MAX_BRACKETS: Final = 5_000
# Beyond its own limit the parser drops the rest; a text this deep is not formatted.
_MAX_NESTING: Final = 60
_MAX_TABLE_WIDTH: Final = 60
_RULE: Final = "─" * 8
_INDENT: Final = "   "

# These characters are markup: always, before "(", or if they are not within a word (snake_case).
# The pattern begins with the characters, and then looks back, because such a search is fast.
_MARKUP: Final = re.compile(
    r"[\x00-\x09\x0b-\x1f&*<\\`~\]_]"
    r"(?:(?<![\]_])|(?<=\])\(|(?<=_)(?:(?<![^\W_]_)|(?![^\W_])))"
)
# A line that begins no block: with a letter or a quotation mark, after the bullet of a list or not.
_TEXT_LINE: Final = re.compile(r"""(?:- )?(?:[^\W\d_]|["'“„«(\[])""")
_BLANK_LINES: Final = re.compile(r"\n\n\n+")

_STYLES: Final[dict[str, SpanKind]] = {"strong": "bold", "em": "italic", "s": "strike"}


def parse(source: str) -> FormattedText:
    """Return the text of a Markdown source, with its formatting as spans."""
    text = storable(source)
    plain = FormattedText(text.strip())
    if len(text) > _MAX_LENGTH or text.count("[") > _MAX_BRACKETS:
        return plain
    return _read_lines(text) or _parse_markup(text) or plain


def _read_lines(text: str) -> FormattedText | None:
    """Return a text of paragraphs and bullets only, as the parser would read it; else None.

    Many answers in a chat are such texts, and the parser takes ten times as long for them.
    """
    if _MARKUP.search(text):
        return None
    lines = "\n" + text.strip("\n")
    is_in_list = is_after_blank = False
    for line in lines.split("\n"):
        if not line:
            is_after_blank = True
            continue
        if line[-1].isspace() or not _TEXT_LINE.match(line):
            return None
        is_bullet = line.startswith("- ")
        if is_bullet and is_in_list and is_after_blank:
            return None  # a blank line between two items separates all items of the list
        # A line right after an item goes on with the item.
        is_in_list = is_bullet or (is_in_list and not is_after_blank)
        is_after_blank = False
    with_bullets = lines.replace("\n- ", "\n• ")[1:]
    return FormattedText(_BLANK_LINES.sub("\n\n", with_bullets)) if with_bullets else None


def _parse_markup(text: str) -> FormattedText | None:
    """Return what the parser reads; None if it is nested too deep, or nothing but markup."""
    tokens = _parser().parse(text)
    if any(token.level >= _MAX_NESTING - 1 for token in tokens):
        return None
    writer = _Writer()
    writer.write_blocks(tokens)
    formatted = writer.result()
    # Nothing but markup: shown as it is, because a message needs a text.
    return formatted if formatted.text.strip() else None


def format_parts(
    source: str, limit: int | None, measure: Measure, *, breaks_mentions: bool = False
) -> list[FormattedText]:
    """Return a Markdown source as the messages of a platform: formatted, then split.

    `measure` returns the length of a message as the platform counts it. With `breaks_mentions`
    no name in the text notifies anybody. Return no message if the source is blank.
    """
    formatted = parse(source)
    if breaks_mentions:
        formatted = break_mentions(formatted)
    parts = (part.strip() for part in split_formatted(formatted, limit, measure))
    return [part for part in parts if part.text]


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt  # takes longer to import than the rest of this package

    parser = MarkdownIt("commonmark", {"html": False, "breaks": True, "maxNesting": _MAX_NESTING})
    parser.enable(["table", "strikethrough"])
    return parser.disable(["lheading", "reference", "html_block", "html_inline"])


class _List:
    """An open list: its next number, or None for bullets."""

    def __init__(self, number: int | None) -> None:
        self.number = number

    def next_marker(self) -> str:
        if self.number is None:
            return "• "
        self.number += 1
        return f"{self.number - 1}. "


class _Writer:
    """Writes the tokens of the parser as text, and notes where the spans begin and end."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._length = 0
        self._spans: list[Span] = []
        # Open spans begin with the next character, so that none begins with a line break.
        self._open: list[tuple[SpanKind, str | None, int | None]] = []
        self._separator = ""
        self._lists: list[_List] = []
        self._quotes = 0
        self._is_after_marker = False
        self._links: list[str] = []
        self._paragraph_end: int | None = None

    def result(self) -> FormattedText:
        # Spans are noted when they end, inner ones first; an outer one must come first.
        return FormattedText.sorted("".join(self._pieces), reversed(self._spans))

    # -- text and spans

    def write(self, text: str) -> None:
        if not text:
            return
        if self._separator and self._length:
            self._append(self._separator)
        self._separator = ""
        self._open = [
            (kind, data, self._length if start is None else start)
            for kind, data, start in self._open
        ]
        self._append(text)
        self._is_after_marker = False

    def _append(self, text: str) -> None:
        self._pieces.append(text)
        self._length += len(text)

    def open(self, kind: SpanKind, data: str | None = None) -> None:
        self._open.append((kind, data, None))

    def close(self) -> None:
        kind, data, start = self._open.pop()
        if start is not None:
            self._spans.append(Span(kind, start, self._length, data))

    def separate(self, separator: str) -> None:
        """Ask for a separator before the next text; of two the longer one counts."""
        if len(separator) > len(self._separator):
            self._separator = separator

    # -- blocks

    def write_blocks(self, tokens: Sequence[Token]) -> None:
        position = 0
        while position < len(tokens):
            token = tokens[position]
            if token.type == "table_open":
                end = _matching_close(tokens, position)
                self._write_table(tokens[position:end])
                position = end
            else:
                self._write_block(token)
            position += 1

    def _write_block(self, token: Token) -> None:
        match token.type:
            case "inline":
                self.write_inline(token.children or ())
            case "paragraph_open":
                self._paragraph_end = token.map[1] if token.map else None
                if not (token.hidden or self._is_after_marker):
                    self.separate("\n\n")
            case "paragraph_close":
                self.separate("\n" if token.hidden else "\n\n")
            case "heading_open":
                self.open("heading", token.tag.removeprefix("h"))
            case "heading_close":
                self.close()
                self.separate("\n\n")
            case "fence" | "code_block":
                self._write_code(token)
            case "hr":
                self.write(_RULE)
                self.separate("\n\n")
            case "blockquote_open" | "blockquote_close":
                self._write_quote(is_open=token.type == "blockquote_open")
            case _:
                self._write_list(token)

    def _write_list(self, token: Token) -> None:
        match token.type:
            case "bullet_list_open" | "ordered_list_open":
                if token.map and token.map[0] == self._paragraph_end:
                    self._separator = "\n"  # there is no blank line before the list
                number = int(token.attrs.get("start", 1)) if token.tag == "ol" else None
                self._lists.append(_List(number))
            case "bullet_list_close" | "ordered_list_close":
                self._lists.pop()
                self.separate("\n" if self._lists else "\n\n")
            case "list_item_open":
                indent = _INDENT * (len(self._lists) - 1)
                self.write(indent + self._lists[-1].next_marker())
                self._is_after_marker = True
            case "list_item_close":
                self.separate("\n")

    def _write_quote(self, *, is_open: bool) -> None:
        # A quote in a quote is shown as part of the outer one: few platforms can nest them.
        if is_open:
            self._quotes += 1
            if self._quotes == 1:
                self.open("quote")
            return
        self._quotes -= 1
        if self._quotes == 0:
            self.close()
        self.separate("\n\n")

    def _write_code(self, token: Token) -> None:
        language, _, rest = token.info.strip().partition(" ")
        # More than a word after the fence is no language: it is text that was put there.
        lines = [rest, token.content] if rest else [token.content]
        content = "\n".join(lines).rstrip("\n")
        if self._is_after_marker:
            self.separate("\n")
        if content.strip():
            self.open("pre", language or None)
            self.write(content)
            self.close()
        else:
            self.write(language)
        self.separate("\n\n")

    def _write_table(self, tokens: Sequence[Token]) -> None:
        rows: list[list[FormattedText]] = []
        for token in tokens:
            if token.type == "tr_open":
                rows.append([])
            elif token.type == "inline":
                cell = _Writer()
                cell.write_inline(token.children or ())
                rows[-1].append(cell.result())
        lines = _align([[to_plain(cell).replace("\n", " ") for cell in row] for row in rows])
        if self._is_after_marker:
            self.separate("\n")
        if lines is not None:
            self.open("pre")
            self.write("\n".join(lines))
            self.close()
        else:
            self._write_wide_table(rows)
        self.separate("\n\n")

    def _write_wide_table(self, rows: Sequence[Sequence[FormattedText]]) -> None:
        for number, row in enumerate(rows):
            if number == 0:
                self.open("bold")
            for column, cell in enumerate(row):
                self.write(" | " if column else "")
                self._write_formatted(cell)
            if number == 0:
                self.close()
            self.separate("\n")

    def _write_formatted(self, formatted: FormattedText) -> None:
        self.write(formatted.text)
        start = self._length - len(formatted.text)
        self._spans.extend(
            moved(span, start + span.start, start + span.end) for span in reversed(formatted.spans)
        )

    # -- inline

    def write_inline(self, tokens: Iterable[Token]) -> None:
        for token in tokens:
            match token.type:
                case "text" | "text_special" | "html_inline":
                    self.write(token.content)
                case "softbreak" | "hardbreak":
                    self.write("\n")
                case "code_inline":
                    self.open("code")
                    self.write(token.content)
                    self.close()
                case "link_open":
                    self._open_link(str(token.attrs.get("href", "")))
                case "link_close":
                    self._close_link()
                case "image":
                    self._write_image(token)
                case _ if token.tag in _STYLES and token.nesting == 1:
                    self.open(_STYLES[token.tag])
                case _ if token.tag in _STYLES and token.nesting == -1:
                    self.close()

    def _open_link(self, url: str) -> None:
        self._links.append(url)
        if url.lower().startswith(LINK_SCHEMES):
            self.open("link", url)

    def _close_link(self) -> None:
        url = self._links.pop()
        if not url.lower().startswith(LINK_SCHEMES):
            if url:
                self.write(f" ({url})")
            return
        _, _, start = self._open[-1]
        if start is None:
            self.write(url)  # a link without a text
        self.close()

    def _write_image(self, token: Token) -> None:
        url = str(token.attrs.get("src", ""))
        if self._links:
            # A link in a link is no link, so the URL of the picture is written out.
            self.write_inline(token.children or ())
            self.write(f" ({url})" if url else "")
            return
        self._open_link(url)
        self.write_inline(token.children or ())
        self._close_link()


def _matching_close(tokens: Sequence[Token], start: int) -> int:
    level = tokens[start].level
    return next(
        position
        for position in range(start + 1, len(tokens))
        if tokens[position].type == "table_close" and tokens[position].level == level
    )


def _align(rows: Sequence[Sequence[str]]) -> list[str] | None:
    """Return the rows as lines with aligned columns; None if they would be too wide."""
    columns = max(map(len, rows), default=0)
    widths = [
        max((_width(row[column]) for row in rows if column < len(row)), default=0)
        for column in range(columns)
    ]
    if not columns or sum(widths) + 3 * (columns - 1) > _MAX_TABLE_WIDTH:
        return None
    lines = [
        " | ".join(
            cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=False)
        ).rstrip()
        for row in rows
    ]
    return [lines[0], "-+-".join("-" * width for width in widths), *lines[1:]]


def _width(text: str) -> int:
    """Return how many columns a text takes in a fixed-width font."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )
