"""Wrapping: between words and wide characters, a word is cut only if no row can hold it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tertulia.platforms.terminal.wrap import (
    Segment,
    count_visible,
    cut,
    drop_visible,
    row_text,
    text_width,
    wrap,
)

TEXT = st.text(st.sampled_from("ab cdé漢字🙂\n"), max_size=80)
WIDTH = st.integers(2, 30)


def wrapped(text: str, width: int) -> list[str]:
    return [row_text(row) for row in wrap([Segment("", text)], width)]


@given(TEXT, WIDTH)
def test_rows_fit_and_nothing_is_lost(text: str, width: int) -> None:
    rows = wrapped(text, width)
    assert all(text_width(row) <= width for row in rows)
    assert "".join("".join(rows).split()) == "".join(text.split())


@given(st.lists(st.text("abc", min_size=1, max_size=6), max_size=20), st.integers(6, 20))
def test_word_that_fits_is_not_cut(words: list[str], width: int) -> None:
    assert " ".join(wrapped(" ".join(words), width)).split() == words


@given(TEXT, WIDTH, st.integers(0, 40))
def test_dropped_characters_are_counted_without_white_space(
    text: str, width: int, count: int
) -> None:
    rest = drop_visible([Segment("", text)], count)
    assert count_visible(rest) == max(count_visible([Segment("", text)]) - count, 0)


def test_wide_characters_break_without_a_space() -> None:
    assert wrapped("漢字漢字", 5) == ["漢字", "漢字"]


def test_long_word_is_cut() -> None:
    assert wrapped("a abcdefgh", 4) == ["a", "abcd", "efgh"]


def test_prefixes_of_the_first_and_other_rows() -> None:
    rows = wrap([Segment("", "aa bb")], 4, (Segment("", "• "),), (Segment("", "  "),))
    assert [row_text(row) for row in rows] == ["• aa", "  bb"]


def test_cut_row_fits() -> None:
    row = (Segment("bold", "ab"), Segment("", "漢字"))
    assert row_text(cut(row, 5)) == "ab漢"
