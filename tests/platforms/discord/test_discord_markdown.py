"""Formatted text as Discord's Markdown: nothing else is read as formatting, nothing is lost."""

from __future__ import annotations

import re

import pytest
from hypothesis import given

from tertulia.core.text.markdown import parse
from tertulia.core.text.spans import FormattedText, Span
from tertulia.platforms.discord.discord_markdown import (
    MAX_TEXT,
    escape,
    format_text,
    measure,
    render,
)
from tests.core.text.test_markdown import SOURCES


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("**bold** *it* ~~no~~ `x`", "**bold** *it* ~~no~~ `x`"),
        ("# Title\n\ntext", "# Title\n\ntext"),
        ("#### Deep", "**Deep**"),
        ("```py\nprint(1)\n```", "```py\nprint(1)\n```"),
        ("[page](https://a.example/x_(y))", "[page](https://a.example/x_(y%29)"),
        ("<https://a.example>", "https://a.example"),
        ("> a\n> b", "> a\n> b"),
        ("2 \\* 3 \\_x\\_", "2 \\* 3 \\_x\\_"),
    ],
)  # fmt: skip
def test_marks(source: str, expected: str) -> None:
    assert render(parse(source)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a*b_c~d|e`f\\g", "a\\*b\\_c\\~d\\|e\\`f\\\\g"),
        ("# no heading", "\\# no heading"),
        ("-# small\n> quote\n>>> all", "\\-# small\n\\> quote\n\\>>> all"),
        ("[no](link)", "\\[no](link)"),
        ("https://a.example/x_y_z*", "https://a.example/x_y_z*"),
        ("<@42> <#1> <:smile:2> <t:1:R>", "<@42> <#1> <:smile:2> <t:1:R>"),
    ],
)
def test_plain_text_is_escaped_and_marks_of_discord_stay(text: str, expected: str) -> None:
    assert escape(text) == expected


def test_code_cannot_end_its_own_block() -> None:
    block = FormattedText("a ``` b", (Span("pre", 0, 7, "no language!"),))
    assert render(block) == "```\na ``\u200b` b\n```"
    assert render(FormattedText("a ` b", (Span("code", 0, 5),))) == "`` a ` b ``"
    assert render(FormattedText("a `` b", (Span("code", 0, 6),))).count("``") == 2


def test_quote_marks_every_line() -> None:
    quote = FormattedText("a\nb\nc", (Span("quote", 0, 3),))
    assert render(quote) == "> a\n> b\nc"


@given(SOURCES)
def test_parts_are_within_the_limit_and_lose_nothing(source: str) -> None:
    parts = format_text(source, 100)
    assert all(measure(part) <= 100 for part in parts)
    text = "".join(part.text for part in parts)
    expected = [letter for letter in parse(source).text if letter.isalnum()]
    assert [letter for letter in text if letter.isalnum()] == expected


def test_long_answer_is_split_and_code_stays_whole() -> None:
    parts = format_text("**word** " * 300 + "\n\n```py\n" + "x = 1\n" * 500 + "```")
    assert len(parts) > 2
    assert all(measure(part) <= MAX_TEXT for part in parts)
    assert all(len(re.findall("```", render(part))) % 2 == 0 for part in parts)
