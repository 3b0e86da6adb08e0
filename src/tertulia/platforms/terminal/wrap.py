"""Styled text in rows of a terminal: the width of characters, and where a row breaks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from wcwidth import iter_graphemes, wcswidth


class Segment(NamedTuple):
    """A piece of text in one style; the theme says how a style looks."""

    style: str
    text: str


Row = tuple[Segment, ...]


class _Cell(NamedTuple):
    """One visible character with everything that is combined with it."""

    text: str
    style: str
    width: int


def row_text(row: Iterable[Segment]) -> str:
    """Return the text of a row without its styles."""
    return "".join(segment.text for segment in row)


def text_width(text: str) -> int:
    """Return how many columns a text takes; characters without a width take none."""
    return max(wcswidth(text), 0) if text.isprintable() else sum(map(_width, iter_graphemes(text)))


def count_visible(segments: Iterable[Segment]) -> int:
    """Return how many characters are not white space; wrapping never changes this number."""
    return sum(not char.isspace() for segment in segments for char in segment.text)


def drop_visible(segments: Iterable[Segment], count: int) -> list[Segment]:
    """Return the segments without their first `count` characters that are not white space.

    White space before the next character is dropped too: a row never begins with it.
    """
    if count == 0:
        return list(segments)
    rest: list[Segment] = []
    for segment in segments:
        text = segment.text
        if not rest:
            text, count = _drop(text, count)
        if text:
            rest.append(Segment(segment.style, text))
    return rest


def _drop(text: str, count: int) -> tuple[str, int]:
    for index, char in enumerate(text):
        if char.isspace():
            continue
        if count == 0:
            return text[index:], 0
        count -= 1
    return "", count


def wrap(segments: Iterable[Segment], width: int, first: Row = (), rest: Row = ()) -> list[Row]:
    """Return the segments in rows of at most `width` columns; a line feed ends a row.

    `first` stands before the first row and `rest` before the others. A row ends between words, or
    between wide characters, which need no space between them. A word is cut only if it is wider
    than a row.
    """
    rows: list[Row] = []
    for line in _lines(segments):
        for cells in _break_line(line, max(width - text_width(row_text(rest)), 1)):
            prefix = rest if rows else first
            rows.append((*prefix, *_join(cells)))
    return rows


def cut(row: Row, width: int) -> Row:
    """Return the part of a row that fits into the width."""
    cells: list[_Cell] = []
    used = 0
    for cell in (cell for segment in row for cell in _cells(segment)):
        used += cell.width
        if used > width:
            break
        cells.append(cell)
    return _join(cells)


def _lines(segments: Iterable[Segment]) -> Iterator[list[_Cell]]:
    line: list[_Cell] = []
    for segment in segments:
        pieces = segment.text.split("\n")
        for index, piece in enumerate(pieces):
            if index:
                yield line
                line = []
            line += _cells(Segment(segment.style, piece))
    yield line


def _cells(segment: Segment) -> Iterator[_Cell]:
    if segment.text.isascii() and segment.text.isprintable():
        for char in segment.text:
            yield _Cell(char, segment.style, 1)
        return
    for grapheme in iter_graphemes(segment.text):
        yield _Cell(grapheme, segment.style, _width(grapheme))


def _width(grapheme: str) -> int:
    return max(wcswidth(grapheme), 0)


def _break_line(line: list[_Cell], width: int) -> Iterator[list[_Cell]]:
    """Yield the rows of one line; an empty line is one empty row."""
    row: list[_Cell] = []
    used = 0
    for whole_word in _words(line):
        word = whole_word
        word_width = sum(cell.width for cell in word)
        is_space = word[0].text.isspace()
        if used + word_width > width and row and not is_space:
            yield _trim(row)
            row, used = [], 0
        if word_width > width and not is_space:
            pieces = list(_cut_word(word, width))
            yield from pieces[:-1]
            word, word_width = pieces[-1], sum(cell.width for cell in pieces[-1])
        if row or not is_space:
            row += word
            used += word_width
    yield _trim(row)


def _words(line: list[_Cell]) -> Iterator[list[_Cell]]:
    """Yield the words and the spaces between them; a wide character is a word of its own."""
    word: list[_Cell] = []
    for cell in line:
        if word and (_kind(cell) != _kind(word[-1]) or cell.width > 1):
            yield word
            word = []
        word.append(cell)
    if word:
        yield word


def _kind(cell: _Cell) -> str:
    if cell.text.isspace():
        return "space"
    return "wide" if cell.width > 1 else "word"


def _cut_word(word: list[_Cell], width: int) -> Iterator[list[_Cell]]:
    piece: list[_Cell] = []
    used = 0
    for cell in word:
        if used + cell.width > width and piece:
            yield piece
            piece, used = [], 0
        piece.append(cell)
        used += cell.width
    yield piece


def _trim(row: list[_Cell]) -> list[_Cell]:
    while row and row[-1].text.isspace():
        row = row[:-1]
    return row


def _join(cells: Iterable[_Cell]) -> Row:
    segments: list[Segment] = []
    for cell in cells:
        if segments and segments[-1].style == cell.style:
            segments[-1] = Segment(cell.style, segments[-1].text + cell.text)
        else:
            segments.append(Segment(cell.style, cell.text))
    return tuple(segments)
