from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.title import suggest_titles, title_line


def test_title_is_one_line_without_invisible_characters() -> None:
    assert title_line("  Trip\n to\tOslo\u200b \x1b[1m ") == "Trip to Oslo [1m"


@given(st.text())
def test_any_title_is_printable(text: str) -> None:
    line = title_line(text)
    assert line.isprintable()
    assert title_line(line) == line


def test_suggested_titles_are_numbered() -> None:
    assert list(islice(suggest_titles("Trip to Oslo"), 3)) == [
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
    assert next(suggest_titles(text)) == title


def test_blank_text_suggests_nothing() -> None:
    assert list(suggest_titles(" \n\u200b")) == []
