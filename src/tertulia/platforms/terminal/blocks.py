"""Markdown as a flat list of leaves (paragraphs, headings, code, tables, rules) with prefixes.

A leaf of a list or a quote carries the marks of its containers as prefixes: one for its first row,
one for the others. Setext headings, reference links and HTML are not Markdown here: they would
change text that was printed long before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Literal, NamedTuple

from tertulia.platforms.terminal.wrap import Row, Segment

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

LeafKind = Literal["text", "heading", "code", "table", "rule"]
Table = tuple[tuple[str, ...], ...]
Alignment = Literal["left", "center", "right"]

QUOTE = Segment("dim", "│ ")
_STYLES = {"strong_open": "bold", "em_open": "italic", "s_open": "strike"}


class Leaf(NamedTuple):
    """A block without blocks in it.

    source      the text between the marks: Markdown of a line, or code
    block_line  the line of the source in which its outermost block begins
    first       the prefix of the first row; `rest` is that of the others
    has_gap     an empty row stands before it, unless it is the first
    table       the cells of a table, row by row; the first row is the head
    alignments  where the cells of each column of the table stand
    """

    kind: LeafKind
    source: str
    block_line: int
    first: Row
    rest: Row
    has_gap: bool
    gap: Row
    language: str = ""
    table: Table = ()
    alignments: tuple[Alignment, ...] = ()

    @property
    def style(self) -> str:
        return "heading" if self.kind == "heading" else ""


class TextSpan(NamedTuple):
    """A piece of rendered text. A mark in a `is_plain` span may still begin emphasis or a link."""

    style: str
    text: str
    is_plain: bool

    @property
    def segment(self) -> Segment:
        return Segment(self.style, self.text)


class _Container:
    """A list item or a quote: its prefix before the first row of its content, and after."""

    def __init__(self, first: Segment, rest: Segment, *, is_item: bool, begins_list: bool) -> None:
        self.first = first
        self.rest = rest
        self.is_item = is_item
        self.begins_list = begins_list
        self.is_new = True


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    off = ["lheading", "reference", "html_block", "html_inline", "autolink", "entity", "text_join"]
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": 40})
    return parser.enable(["table", "strikethrough"]).disable(off)


def parse_leaves(source: str) -> list[Leaf]:
    """Return the leaves of a Markdown text, in order."""
    return list(_Leaves().of(_parser().parse(source)))


class _Leaves:
    """Walks through the tokens of a text, and keeps the containers that are open."""

    def __init__(self) -> None:
        self._open: list[_Container] = []
        self._numbers: list[int | None] = []  # of the next item of each open list; None: bullets
        self._has_item: list[bool] = []
        self._block_line = 0

    def of(self, tokens: Sequence[Token]) -> Iterator[Leaf]:
        index = 0
        while index < len(tokens):
            token = tokens[index]
            if token.level == 0 and token.map is not None:
                self._block_line = token.map[0]
            if token.type == "table_open":
                end = next(at for at in range(index, len(tokens)) if _closes(tokens[at], token))
                leaf = self._leaf("table", "", table=_cells(tokens[index:end]))
                yield leaf._replace(alignments=_alignments(tokens[index:end]))
                index = end
            elif token.type == "inline":
                is_heading = tokens[index - 1].type == "heading_open"
                yield self._leaf("heading" if is_heading else "text", token.content)
            elif token.type in ("fence", "code_block"):
                words = token.info.split()
                yield self._leaf("code", token.content, language=words[0] if words else "")
            elif token.type == "hr":
                yield self._leaf("rule", "")
            else:
                self._enter_or_leave(token)
            index += 1

    def _enter_or_leave(self, token: Token) -> None:
        match token.type:
            case "bullet_list_open" | "ordered_list_open":
                number = int(token.attrGet("start") or 1) if token.markup not in "-*+" else None
                self._numbers.append(number)
                self._has_item.append(False)
            case "bullet_list_close" | "ordered_list_close":
                self._numbers.pop()
                self._has_item.pop()
            case "list_item_open":
                self._open.append(self._item())
            case "blockquote_open":
                self._open.append(_Container(QUOTE, QUOTE, is_item=False, begins_list=False))
            case "list_item_close" | "blockquote_close":
                self._open.pop()
            case _:
                pass

    def _item(self) -> _Container:
        number = self._numbers[-1]
        if number is not None:
            self._numbers[-1] = number + 1
        mark = "• " if number is None else f"{number}. "
        begins_list = not self._has_item[-1]
        self._has_item[-1] = True
        return _Container(
            Segment("marker", mark),
            Segment("", " " * len(mark)),
            is_item=True,
            begins_list=begins_list and len(self._numbers) == 1,
        )

    def _leaf(self, kind: LeafKind, source: str, *, language: str = "", table: Table = ()) -> Leaf:
        new_items = [item for item in self._open if item.is_new and item.is_item]
        has_gap = not new_items or any(item.begins_list for item in new_items)
        first = tuple(item.first if item.is_new else item.rest for item in self._open)
        rest = tuple(item.rest for item in self._open)
        quotes = tuple(item.rest for item in self._open if not item.is_item and not item.is_new)
        for item in self._open:
            item.is_new = False
        return Leaf(
            kind, source, self._block_line, first, rest, has_gap, quotes,
            language=language, table=table,
        )  # fmt: skip


def inline_spans(source: str, style: str = "") -> list[TextSpan]:
    """Return the rendered text of inline Markdown; a link shows its address behind its text."""
    (inline,) = _parser().parseInline(source)
    return list(_without_empty_lines(_spans(inline.children or [], [style] if style else [])))


def _without_empty_lines(spans: Iterable[TextSpan]) -> Iterator[TextSpan]:
    """Leave out line breaks before which nothing stands: a row has at least one character.

    Rows are counted by their visible characters, so an empty one would be returned again and again.
    """
    is_empty = True
    for span in spans:
        if span.text == "\n":
            if is_empty:
                continue
            is_empty = True
        elif span.text.strip():
            is_empty = False
        yield span


def _spans(tokens: Sequence[Token], outer: list[str]) -> Iterator[TextSpan]:
    styles = list(outer)
    links: list[tuple[str, int]] = []
    text = ""
    for token in tokens:
        style = " ".join(dict.fromkeys(styles))
        match token.type:
            case "text" | "text_special":
                text += token.content
                yield TextSpan(style, token.content, token.type == "text")
            case "code_inline":
                text += token.content
                yield TextSpan(f"{style} code".strip(), token.content, False)
            case "softbreak" | "hardbreak":
                text += "\n"
                yield TextSpan(style, "\n", False)
            case "image":
                address = str(token.attrGet("src") or "")
                yield TextSpan(style, f"{token.content} ({address})".strip(), False)
            case "link_open":
                links.append((str(token.attrGet("href") or ""), len(text)))
                styles.append("link")
            case "link_close":
                styles.remove("link")
                address, start = links.pop()
                if text[start:] != address:
                    yield TextSpan("dim", f" ({address})", False)
            case opening if opening in _STYLES:
                styles.append(_STYLES[opening])
            case closing if closing.replace("_close", "_open") in _STYLES:
                styles.remove(_STYLES[closing.replace("_close", "_open")])
            case _:
                pass


def _closes(token: Token, opening: Token) -> bool:
    return token.type == "table_close" and token.level == opening.level


def _cells(tokens: Sequence[Token]) -> Table:
    rows: list[list[str]] = []
    for token in tokens:
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline":
            rows[-1].append(token.content)
    return tuple(map(tuple, rows))


def _alignments(tokens: Sequence[Token]) -> tuple[Alignment, ...]:
    """Return the alignment of each column, from the cells of the head."""
    styles = (str(token.attrGet("style")) for token in tokens if token.type == "th_open")
    return tuple(
        "right" if "right" in style else "center" if "center" in style else "left"
        for style in styles
    )
