"""Markdown in rows of a terminal, also while it is still being written. Pure.

`Stream.feed` returns rows that are final: they are printed once and never change. `Stream.tail`
has the rows that the next piece of text may still change. Only the source of the last block is
parsed again for each piece.

A row of the last block is final under these rules:

    paragraph    all rows but the last, up to the first mark that may still begin emphasis, code or
                 a link; a mark that is open for `MAX_HELD_ROWS` rows is taken literally for good.
                 A line that the next one may turn into the head of a table is not final
    list, quote  the rows of finished children, then the rule of the last child
    code         each ended line; not wrapped and not indented, so that it can be copied
    table        when it has ended

The position in a paragraph is counted in visible characters, not in rows, so that a change of the
width neither loses nor repeats any.
"""

from __future__ import annotations

import re
from typing import Final

from tertulia.core.text.display_safe import display_text
from tertulia.platforms.terminal.blocks import Leaf, TextSpan, inline_spans, parse_leaves
from tertulia.platforms.terminal.highlight import highlight_lines
from tertulia.platforms.terminal.table import table_rows
from tertulia.platforms.terminal.wrap import (
    Row,
    Segment,
    count_visible,
    drop_visible,
    row_text,
    text_width,
    wrap,
)

MAX_WIDTH: Final = 100
MAX_HELD_ROWS: Final = 6
_MARKS: Final = "*_`~["
_BLANK_END = re.compile(r"\n[ \t]*\n[ \t]*\Z")
# The last line is undecided while it may become a rule, the next item of a list or a code block, or
# turn out to be none of them.
_UNDECIDED_LINE = re.compile(
    r"(?:\A|(?<=\n))(?:[-*_+ \t>]+|[ \t>]*\d{1,9}[.)]?[ \t]*|[^\w\n`]*`{3,}[^\n]*)\Z"
)
_DELIMITER_START = re.compile(r"[ \t|:-]*")


def row_width(columns: int) -> int:
    """Return the width of rows: one column is left free, so that no terminal breaks a row."""
    return max(min(columns - 1, MAX_WIDTH), 1)


def render(markdown: str, width: int, *, is_plain: bool = False) -> list[Row]:
    """Return the rows of a whole text; `is_plain`: for a reader who hears them (see `Stream`)."""
    stream = Stream(width, is_plain=is_plain)
    return [*stream.feed(markdown), *stream.finish()]


class Stream:
    """The rows of a text that arrives in pieces. `width` may be changed at any time.

    `is_plain`: a table has a line for each cell, and nothing is drawn.
    """

    def __init__(self, width: int, *, is_plain: bool = False) -> None:
        self.width = width
        self._is_plain = is_plain
        self._source = ""  # of the last block
        self._leaf_index = 0  # leaves of the last block that were returned as a whole
        self._position = 0  # in the next leaf: visible characters, or lines of code
        self._literal: dict[int, list[int]] = {}  # by leaf: offsets of marks taken literally
        self._has_rows = False

    def feed(self, text: str) -> list[Row]:
        """Add a piece of the text; return the rows that are final now."""
        self._source += display_text(text)
        rows = self._take(is_end=False)
        self._forget_finished_blocks()
        return rows

    def finish(self) -> list[Row]:
        """End the text; return the remaining rows. The next piece begins a new text."""
        rows = self._take(is_end=True)
        self.__init__(self.width, is_plain=self._is_plain)  # type: ignore[misc]
        return rows

    @property
    def tail(self) -> list[Row]:
        """Return the rows that are not final yet."""
        leaves = parse_leaves(self._source)[self._leaf_index :]
        rows: list[Row] = []
        position = self._position
        for index, leaf in enumerate(leaves, self._leaf_index):
            has_gap = leaf.has_gap and position == 0 and (rows or self._has_rows)
            rows += [leaf.gap] if has_gap else []
            rows += self._rows(index, leaf, position)
            position = 0
        return rows

    def _take(self, *, is_end: bool) -> list[Row]:
        leaves = parse_leaves(self._source if is_end else self._decided)
        rows: list[Row] = []
        for index in range(self._leaf_index, len(leaves)):
            leaf = leaves[index]
            is_open = index == len(leaves) - 1 and not is_end and self._may_change(leaf)
            final = self._final_rows(index, leaf) if is_open else self._rest_of(index, leaf)
            if final and self._position == 0 and leaf.has_gap and self._has_rows:
                rows.append(leaf.gap)
            rows += final
            self._has_rows = self._has_rows or bool(final)
            if is_open:
                self._position += self._count(leaf, final)
                break
            self._leaf_index, self._position = index + 1, 0
        return rows

    @property
    def _decided(self) -> str:
        """The source without its last line, if it is not certain what that is."""
        return _UNDECIDED_LINE.sub("", self._source)

    def _may_change(self, leaf: Leaf) -> bool:
        """Return whether more text may change the last leaf."""
        if leaf.kind == "code":
            return True
        if leaf.kind in ("heading", "rule"):
            return not self._source.endswith("\n")
        return not _BLANK_END.search(self._source)

    def _rest_of(self, index: int, leaf: Leaf) -> list[Row]:
        return self._rows(index, leaf, self._position)

    def _rows(self, index: int, leaf: Leaf, position: int) -> list[Row]:
        """Return the rows of a leaf after a position."""
        if leaf.kind == "code":
            return highlight_lines(leaf.source, leaf.language)[position:]
        if leaf.kind == "table":
            return table_rows(
                leaf.table, self.width, leaf.rest, leaf.alignments, is_plain=self._is_plain
            )
        if leaf.kind == "rule" and self._is_plain:
            return []
        if leaf.kind == "rule":
            width = self.width - text_width(row_text(leaf.rest))
            return [(*leaf.rest, Segment("dim", "─" * max(min(width, 40), 1)))]
        return self._wrapped(self._spans(index, leaf), leaf, position)

    def _wrapped(self, spans: list[TextSpan], leaf: Leaf, position: int) -> list[Row]:
        segments = drop_visible([span.segment for span in spans], position)
        first = leaf.rest if position else leaf.first
        return wrap(segments, self.width, first, leaf.rest) if segments or not position else []

    def _spans(self, index: int, leaf: Leaf) -> list[TextSpan]:
        return inline_spans(self._source_of(index, leaf), leaf.style)

    def _final_rows(self, index: int, leaf: Leaf) -> list[Row]:
        """Return the rows of the open last leaf that no further text can change."""
        if leaf.kind == "code":
            lines = self._rows(index, leaf, self._position)
            return lines if self._source.endswith("\n") else lines[:-1]
        if leaf.kind != "text":
            return []
        # A mark at the end may be continued, and then closes nothing or something else.
        leaf = leaf._replace(source=leaf.source.rstrip("*_`~"))
        spans = self._spans(index, leaf)
        rows = self._wrapped(spans, leaf, self._position)
        limit = _first_open_mark(spans)
        final = self._rows_up_to(rows[:-1], leaf, min(limit, _table_head(leaf.source, spans)))
        is_held_long = len(rows) - len(final) > MAX_HELD_ROWS and limit < _count_spans(spans)
        if is_held_long and self._take_literally(index, leaf, limit):
            return self._final_rows(index, leaf)
        return final

    def _rows_up_to(self, rows: list[Row], leaf: Leaf, limit: int) -> list[Row]:
        final: list[Row] = []
        position = self._position
        for row in rows:
            position += _count_row(leaf, row, is_first=position == 0)
            # At the limit itself the next word begins, which may become short enough for this row.
            if position >= limit:
                break
            final.append(row)
        return final

    def _source_of(self, index: int, leaf: Leaf) -> str:
        """Return the source of a leaf, with a backslash before each mark taken literally."""
        source = leaf.source
        for offset in sorted(self._literal.get(index, ()), reverse=True):
            source = f"{source[:offset]}\\{source[offset:]}"
        return source

    def _take_literally(self, index: int, leaf: Leaf, position: int) -> bool:
        """Take the open mark at a position of the rendered text literally, for good."""
        offsets = self._literal.setdefault(index, [])
        source = self._source_of(index, leaf)
        text = _text(inline_spans(source))
        for offset, char in enumerate(source):
            if char not in _MARKS or source[max(offset - 1, 0)] == "\\":
                continue
            before = inline_spans(source[:offset])
            escaped = f"{source[:offset]}\\{source[offset:]}"
            if _count_spans(before) >= position and _text(inline_spans(escaped)) == text:
                offsets.append(offset - sum(other < offset for other in sorted(offsets)))
                return True
        return False

    def _forget_finished_blocks(self) -> None:
        leaves = parse_leaves(self._decided)
        if not leaves:
            return
        start = leaves[-1].block_line
        finished = sum(leaf.block_line < start for leaf in leaves)
        if start and self._leaf_index >= finished:
            self._source = "".join(self._source.splitlines(keepends=True)[start:])
            self._leaf_index -= finished
            self._literal = {
                index - finished: offsets
                for index, offsets in self._literal.items()
                if index >= finished
            }

    def _count(self, leaf: Leaf, rows: list[Row]) -> int:
        """Return by how much rows of the open leaf move the position."""
        if leaf.kind == "code":
            return len(rows)
        return sum(
            _count_row(leaf, row, is_first=self._position == 0 and at == 0)
            for at, row in enumerate(rows)
        )


def _count_row(leaf: Leaf, row: Row, *, is_first: bool) -> int:
    """Return the number of visible characters of a row, without its prefix."""
    return count_visible(row[len(leaf.first if is_first else leaf.rest) :])


def _count_spans(spans: list[TextSpan]) -> int:
    return count_visible(span.segment for span in spans)


def _text(spans: list[TextSpan]) -> str:
    return "".join(span.text for span in spans)


def _first_open_mark(spans: list[TextSpan]) -> int:
    """Return how many visible characters stand before the first mark that may begin something.

    Counted up to the word with the mark: without its marks the word is shorter.
    """
    text = _text(spans)
    owners = [span for span in spans for _ in span.text]
    visible = word_start = 0
    for offset, char in enumerate(text):
        # Between two styles there are marks in the source.
        is_joined = offset > 0 and owners[offset - 1].style == owners[offset].style
        before = text[offset - 1] if is_joined else ""
        if owners[offset].is_plain and char in _MARKS and _may_open(text, offset, before):
            return word_start
        visible += not char.isspace()
        if char.isspace():
            word_start = visible
    return visible


def _may_open(text: str, offset: int, before: str) -> bool:
    """Return whether text that follows may make this mark the beginning of something.

    `before` is the character before it, "" if there is a mark or nothing.
    """
    mark, after = text[offset], text[offset + 1 :]
    if mark == "~":
        return after[:1] in ("~", "") or before == "~"
    if mark == "_":
        return not after[:1].isspace() and not before.isalnum()
    if mark == "*":
        return not after[:1].isspace()
    return mark == "`" or not _is_no_link(after)


def _is_no_link(after: str) -> bool:
    """Return whether a bracket is closed again and no address follows."""
    depth = 0
    for offset, char in enumerate(after):
        if char == "[":
            depth += 1
        elif char == "]":
            depth -= 1
            if depth < 0:
                return after[offset + 1 : offset + 2] not in ("(", "")
    return False


def _table_head(source: str, spans: list[TextSpan]) -> int:
    """Return the visible characters before a line that the next may turn into a table's head."""
    lines = source.split("\n")
    if len(lines) > 1 and "|" in lines[-2] and _DELIMITER_START.fullmatch(lines[-1]):
        held_lines = 2
    elif "|" in lines[-1]:
        held_lines = 1
    else:
        return _count_spans(spans)
    rendered = _text(spans).split("\n")
    return sum(not char.isspace() for char in "".join(rendered[:-held_lines]))
