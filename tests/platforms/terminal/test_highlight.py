"""Highlighted code: the same lines, with styles where the language is known."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tertulia.platforms.terminal.highlight import highlight_lines
from tertulia.platforms.terminal.wrap import row_text


@given(
    st.text(st.sampled_from("ab =\"'#(){}:\n"), max_size=80), st.sampled_from(["py", "", "nope"])
)
def test_lines_are_unchanged(code: str, language: str) -> None:
    assert [row_text(row) for row in highlight_lines(code, language)] == code.splitlines()


def test_known_language_has_styles() -> None:
    (row,) = highlight_lines("return 1  # why", "python")
    assert {"code-keyword", "code-number", "code-comment"} <= {segment.style for segment in row}
