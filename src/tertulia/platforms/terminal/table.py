"""A table in rows of a terminal: columns side by side, or one line per cell where it is narrow."""

from __future__ import annotations

from tertulia.platforms.terminal.blocks import Table, inline_spans
from tertulia.platforms.terminal.wrap import Row, Segment, row_text, text_width, wrap

_MIN_COLUMN = 8
_SEPARATOR = Segment("dim", " │ ")


def table_rows(table: Table, width: int, prefix: Row = ()) -> list[Row]:
    """Return the rows of a table; the first row of cells is its head."""
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
    widths = _fit(columns, room - 3 * (len(head) - 1))
    rows = _as_lines(cells, room) if widths is None else _side_by_side(cells, widths)
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


def _side_by_side(cells: list[list[list[Segment]]], widths: list[int]) -> list[Row]:
    rows: list[Row] = []
    for index, line in enumerate(cells):
        wrapped = [wrap(cell, width) for cell, width in zip(line, widths, strict=True)]
        for at in range(max(map(len, wrapped))):
            pieces = [cell[at] if at < len(cell) else () for cell in wrapped]
            rows.append(_join(pieces, widths))
        if index == 0:
            rows.append((Segment("dim", "─┼─".join("─" * width for width in widths)),))
    return rows


def _join(pieces: list[Row], widths: list[int]) -> Row:
    row: list[Segment] = []
    for at, (piece, width) in enumerate(zip(pieces, widths, strict=True)):
        row += piece
        if at < len(pieces) - 1:
            padding = width - text_width(row_text(piece))
            row += [Segment("", " " * padding), _SEPARATOR] if padding else [_SEPARATOR]
    return tuple(row)


def _as_lines(cells: list[list[list[Segment]]], room: int) -> list[Row]:
    head, *body = cells
    rows: list[Row] = []
    for index, line in enumerate(body):
        if index:
            rows.append(())
        for title, cell in zip(head, line, strict=True):
            rows += wrap([*title, Segment("", ": "), *cell], room)
    return rows or [row for title in head for row in wrap(title, room)]
