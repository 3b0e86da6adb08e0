from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.title import one_line, titles_from


def test_title_is_one_line_without_invisible_characters() -> None:
    assert one_line("  Trip\n to\tOslo\u200b \x1b[1m ") == "Trip to Oslo [1m"


@given(st.text())
def test_any_title_is_printable(text: str) -> None:
    line = one_line(text)
    assert line.isprintable()
    assert one_line(line) == line


def test_suggested_titles_are_numbered() -> None:
    assert list(islice(titles_from("Trip to Oslo"), 3)) == [
        "Trip to Oslo",
        "Trip to Oslo (2)",
        "Trip to Oslo (3)",
    ]


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("word " * 30, "word " * 10 + "word word…"),
        ("x" * 100, "x" * 60 + "…"),
        ("a" * 50 + ", and then much more", "a" * 50 + ", and…"),
    ],
)
def test_long_text_is_cut_at_a_word(text: str, title: str) -> None:
    assert next(titles_from(text)) == title


def test_blank_text_suggests_nothing() -> None:
    assert list(titles_from(" \n\u200b")) == []
