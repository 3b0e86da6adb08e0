from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.text.excerpt import log_line


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
