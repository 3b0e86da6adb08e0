"""A table in rows of a terminal: columns side by side, or one line per cell where it is narrow."""

from __future__ import annotations

from collections.abc import Sequence

from tertulia.platforms.terminal.blocks import Alignment, Table, inline_spans
from tertulia.platforms.terminal.wrap import Row, Segment, row_text, text_width, wrap

_MIN_COLUMN = 8
_SEPARATOR = Segment("dim", " │ ")


def table_rows(
    table: Table,
    width: int,
    prefix: Row = (),
    alignments: Sequence[Alignment] = (),
    *,
    is_plain: bool = False,
) -> list[Row]:
    """Return the rows of a table; the first row of cells is its head.

    `is_plain`: no columns, a line for each cell, which can be read aloud.
    """
    room = max(width - text_width(row_text(prefix)), 1)
    head, *body = table
    cells = [[_segments(cell, "bold") for cell in head]]
    cells += [[_segments(cell) for cell in _fill(row, len(head))] for row in body]
    natural = [
        max(max((text_width(row_text(row)) for row in wrap(line[at], 10_000)), default=0), 1)
        for line in cells
        for at in range(len(head))
    ]
    columns = [max(natural[at :: len(head)]) for at in range(len(head))]
    widths = None if is_plain else _fit(columns, room - 3 * (len(head) - 1))
    if widths is None:
        rows = _as_lines(cells, room)
    else:
        rows = _side_by_side(cells, widths, alignments or ["left"] * len(widths))
    return [(*prefix, *row) for row in rows]


def _segments(cell: str, style: str = "") -> list[Segment]:
    return [span.segment for span in inline_spans(cell, style)]


def _fill(row: tuple[str, ...], count: int) -> tuple[str, ...]:
    return (*row, *[""] * (count - len(row)))[:count]


def _fit(natural: list[int], room: int) -> list[int] | None:
    """Return the widths of the columns, the widest made narrower; None if they cannot fit."""
    widths = list(natural)
    while sum(widths) > room:
        widest = max(widths)
        if widest <= _MIN_COLUMN:
            return None
        # All the widest columns shrink together to the next width below them.
        below = max([width for width in widths if width < widest], default=_MIN_COLUMN)
        count = widths.count(widest)
        shrink = min(widest - max(below, _MIN_COLUMN), -(-(sum(widths) - room) // count))
        widths = [width - max(shrink, 1) if width == widest else width for width in widths]
    return widths


def _side_by_side(
    cells: list[list[list[Segment]]], widths: list[int], alignments: Sequence[Alignment]
) -> list[Row]:
    rows: list[Row] = []
    for index, line in enumerate(cells):
        wrapped = [wrap(cell, width) for cell, width in zip(line, widths, strict=True)]
        for at in range(max(map(len, wrapped))):
            pieces = [cell[at] if at < len(cell) else () for cell in wrapped]
            rows.append(_join(pieces, widths, alignments))
        if index == 0:
            rows.append((Segment("dim", "─┼─".join("─" * width for width in widths)),))
    return rows


def _join(pieces: list[Row], widths: list[int], alignments: Sequence[Alignment]) -> Row:
    row: list[Segment] = []
    for at, (piece, width, alignment) in enumerate(zip(pieces, widths, alignments, strict=True)):
        room = width - text_width(row_text(piece))
        before = {"left": 0, "center": room // 2, "right": room}[alignment]
        row += [Segment("", " " * before)] if before else []
        row += piece
        if at < len(pieces) - 1:
            after = room - before
            row += [Segment("", " " * after), _SEPARATOR] if after else [_SEPARATOR]
    return tuple(row)


def _as_lines(cells: list[list[list[Segment]]], room: int) -> list[Row]:
    head, *body = cells
    if len(head) > 1 and not any(map(row_text, head[1:])):
        return _as_entries(cells, room)
    rows: list[Row] = []
    for index, line in enumerate(body):
        if index:
            rows.append(())
        for title, cell in zip(head, line, strict=True):
            rows += wrap([*title, Segment("", ": "), *cell], room)
    return rows or [row for title in head for row in wrap(title, room)]


def _as_entries(cells: list[list[list[Segment]]], room: int) -> list[Row]:
    """Return the rows of a table whose other columns have no head: a line for each row of cells."""
    rows: list[Row] = []
    for line in cells:
        present = [cell for cell in line if row_text(cell)]
        if rows and len(present) == 1:  # a heading between the rows
            rows.append(())
        parts = [part for cell in present for part in (Segment("", ": "), *cell)]
        rows += wrap(parts[1:], room)
    return rows
