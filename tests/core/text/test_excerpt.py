from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.text.excerpt import log_line, one_line, short_repr, shorten


@pytest.mark.parametrize(
    ("text", "limit", "line"),
    [
        ("short", 10, "short"),
        ("two\nlines\x1b[1m", 20, "two lines [1m"),
        ("abcdefghij", 5, "abcd…"),
        ("abcde", 5, "abcde"),
        (" " * 100 + "far away", 5, "…"),
    ],
)
def test_excerpt_is_one_short_line(text: str, limit: int, line: str) -> None:
    assert log_line(text, limit) == line


@given(st.text(), st.integers(1, 50))
def test_any_excerpt_is_printable_and_within_the_limit(text: str, limit: int) -> None:
    line = log_line(text, limit)
    assert line.isprintable()
    assert len(line) <= limit


@pytest.mark.parametrize(
    ("text", "limit", "line"),
    [
        (" two\n\tlines ", None, "two lines"),
        ("abcde", 5, "abcde"),
        ("abcdef", 5, "abcd…"),
        ("abc def", 5, "abc…"),
    ],
)
def test_words_are_joined_and_cut_at_the_limit(text: str, limit: int | None, line: str) -> None:
    assert one_line(text, limit) == line


@given(st.lists(st.sampled_from(["a", "bc", " ", "\n", " " * 9, "\u2003"])), st.integers(1, 12))
def test_line_of_a_long_text_is_that_of_all_its_words(pieces: list[str], limit: int) -> None:
    text = "".join(pieces)
    assert one_line(text, limit) == shorten(one_line(text), limit)


def test_beginning_of_a_longer_line_ends_with_an_ellipsis() -> None:
    assert shorten("abc", 5) == "abc"
    assert shorten("abc", 5, is_cut=True) == "abc…"


@pytest.mark.parametrize(
    "character",
    [
        "e\u0301",  # an accent of its own
        "❤\ufe0f",
        "👍🏽",
        "👩‍👩‍👧‍👦",
        "🏴󠁧󠁢󠁳󠁣󠁴󠁿",
        "🇵🇹",
    ],
)
def test_cut_leaves_no_half_of_a_character(character: str) -> None:
    text = 20 * character
    for limit in range(len(character) + 1, len(text)):
        assert shorten(text, limit) == (limit - 1) // len(character) * character + "…"


def test_endless_marks_are_cut_at_the_limit() -> None:
    assert shorten("a" + "\u0301" * 100, 50) == "a" + "\u0301" * 48 + "…"


def test_repr_of_a_value_is_short() -> None:
    assert short_repr("a") == "'a'"
    assert len(short_repr("a" * 1000)) == 78
