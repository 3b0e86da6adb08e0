"""Formatted text in the marks of WhatsApp."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.text.markdown import parse
from tertulia.core.text.split import length
from tertulia.platforms.whatsapp.markup import MAX_TEXT, format_text, to_markup


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("**bold** *it* ~~no~~ `x`", "*bold* _it_ ~no~ `x`"),
        ("# **Title**", "*Title*"),
        ("```py\na\nb\n```", "```\na\nb\n```"),
        ("```\none line\n```", "```one line```"),
        ("[page](https://a.example) <https://b.example>",
         "page (https://a.example) https://b.example"),
        ("> a\n> b\n\nc", "> a\n> b\n\nc"),
        ("- a\n- b", "• a\n• b"),
        ("```\n**code**\n```", "```**code**```"),
    ],
)  # fmt: skip
def test_marks(source: str, expected: str) -> None:
    formatted = parse(source)
    assert to_markup(formatted.text, formatted.spans) == expected


@given(st.text(alphabet="ab *_~`[]()#>-\n👋", max_size=300), st.integers(60, 200))
def test_parts_are_within_the_limit_and_lose_nothing(source: str, limit: int) -> None:
    parts = format_text(source, limit)
    texts = [to_markup(part.text, part.spans) for part in parts]
    assert all(length(text, "utf16") <= limit for text in texts)
    expected = [letter for letter in parse(source).text if letter.isalnum()]
    assert [letter for text in texts for letter in text if letter.isalnum()] == expected


def test_long_answer_is_split() -> None:
    parts = format_text("**word** 👋 " * 2000)
    assert len(parts) > 2
    assert all(length(to_markup(part.text, part.spans), "utf16") <= MAX_TEXT for part in parts)
