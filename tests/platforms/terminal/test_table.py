"""Tables: columns where they fit, lines of `head: value` where they do not."""

from __future__ import annotations

import pytest

from tertulia.platforms.terminal.blocks import parse_leaves
from tertulia.platforms.terminal.table import table_rows
from tertulia.platforms.terminal.wrap import row_text, text_width

TABLE = (
    ("name", "what it does"),
    ("rain", "a **long** text about the rain in Sevilla"),
    ("sun", "–"),
)


def texts(width: int) -> list[str]:
    return [row_text(row) for row in table_rows(TABLE, width)]


def test_columns_have_the_width_of_their_widest_cell() -> None:
    assert texts(80) == [
        "name │ what it does",
        "─────┼" + "─" * 38,
        "rain │ a long text about the rain in Sevilla",
        "sun  │ –",
    ]


def test_widest_column_is_wrapped() -> None:
    assert texts(30)[2:4] == ["rain │ a long text about the", "     │ rain in Sevilla"]


@pytest.mark.parametrize("width", [14, 20, 25, 30, 60])
def test_no_row_is_too_wide(width: int) -> None:
    assert all(text_width(row) <= width for row in texts(width))


def test_narrow_table_is_a_list_of_values() -> None:
    narrow = table_rows((("day", "rain"), ("Monday 16 November", "none at all")), 12)
    assert row_text(narrow[0]).startswith("day: ")


def test_missing_cells_are_empty() -> None:
    assert row_text(table_rows((("a", "b"), ("1",)), 40)[2]).rstrip(" │") == "1"


def test_cells_stand_where_the_column_says() -> None:
    (leaf,) = parse_leaves(
        "| day | litres | sky |\n|:--|--:|:-:|\n| Mon | 2 | sun |\n| Tue | 10 | – |"
    )
    assert leaf.alignments == ("left", "right", "center")
    rows = [row_text(row) for row in table_rows(leaf.table, 40, (), leaf.alignments)]
    assert rows == [
        "day │ litres │ sky",
        "────┼────────┼────",
        "Mon │      2 │ sun",
        "Tue │     10 │  –",
    ]


def test_plain_table_has_a_line_for_each_value() -> None:
    rows = [row_text(row) for row in table_rows(TABLE, 80, is_plain=True)]
    assert rows == [
        "name: rain",
        "what it does: a long text about the rain in Sevilla",
        "",
        "name: sun",
        "what it does: –",
    ]
    entries = (("Keys", ""), ("Tab", "complete"), ("**More**", ""), ("ctrl-D", "leave"))
    rows = [row_text(row) for row in table_rows(entries, 80, is_plain=True)]
    assert rows == ["Keys", "Tab: complete", "", "More", "ctrl-D: leave"]
