"""Long texts in parts: nothing lost, nothing too long, code blocks that look right."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tertulia.core.platform import LengthUnit
from tertulia.core.text.markdown import parse
from tertulia.core.text.spans import FormattedText, Span, to_html
from tertulia.core.text.split import Measure, length, split, split_formatted

UNITS: tuple[LengthUnit, ...] = ("characters", "utf16", "bytes")
PROSE = st.lists(
    st.sampled_from(
        [
            "a word",
            "two. Three!",
            "\n",
            "\n\n",
            "\n```py\n",
            "\n```\n",
            "x" * 30,
            "é",
            "👩‍👩‍👧",
            "日本",
        ]
    ),
    max_size=60,
).map(" ".join)
FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})", re.MULTILINE)


def letters(text: str) -> str:
    """Return a text without blanks and the marks of code blocks."""
    return re.sub(r"\s", "", re.sub(r"^ {0,3}(`{3,}|~{3,})[^\n]*$", "", text, flags=re.MULTILINE))


@given(PROSE | st.text(max_size=400), st.integers(4, 80), st.sampled_from(UNITS))
def test_no_part_is_too_long_or_empty(text: str, limit: int, unit: LengthUnit) -> None:
    parts = split(text, limit, unit)
    assert all(part.strip() for part in parts)
    # One character of four bytes fits into the least limit there is here.
    assert all(length(part, unit) <= limit for part in parts)


@given(st.text(st.characters(exclude_characters="`~"), max_size=400), st.integers(4, 80))
def test_no_text_is_lost(text: str, limit: int) -> None:
    said = "".join(split(text, limit))
    assert re.sub(r"\s", "", said) == re.sub(r"\s", "", text)


@given(PROSE, st.integers(60, 120))
@example("```py\n" + "x = 1\n" * 40 + "```", 60)
def test_code_blocks_are_closed_and_nothing_in_them_is_lost(text: str, limit: int) -> None:
    parts = split(text, limit)
    assert letters("\n".join(parts)) == letters(text)


@pytest.mark.parametrize("limit", [40, 60, 100])
def test_long_code_block_is_closed_and_reopened(limit: int) -> None:
    text = "See:\n```py\n" + "".join(f"line {n}\n" for n in range(40)) + "```\nThat is all."
    parts = split(text, limit)
    assert len(parts) > 1
    for part in parts:
        assert len(FENCE.findall(part)) % 2 == 0
    assert all(part.startswith("```py\n") for part in parts[1:-1])
    numbers = re.findall(r"line (\d+)", "\n".join(parts))
    assert numbers == [str(n) for n in range(40)]


def test_code_block_that_fits_stays_whole() -> None:
    block = "```\n" + "code\n" * 10 + "```"
    parts = split("word " * 12 + "\n" + block + "\nmore", 80)
    assert any(block in part for part in parts)


@pytest.mark.parametrize(
    ("text", "limit", "parts"),
    [
        ("", 10, []),
        (" \n ", 10, []),
        ("short", 10, ["short"]),
        ("short", None, ["short"]),
        ("one two three", 8, ["one two", "three"]),
        ("First one. Second one.", 14, ["First one.", "Second one."]),
        ("para one\n\npara two", 12, ["para one", "para two"]),
        ("a line\nand one\nmore", 16, ["a line\nand one", "more"]),
        ("x" * 10, 4, ["xxxx", "xxxx", "xx"]),
    ],
)
def test_parts_end_where_a_reader_pauses(text: str, limit: int | None, parts: list[str]) -> None:
    assert split(text, limit) == parts


def test_limit_counts_in_the_unit_of_the_platform() -> None:
    assert split("😀😀😀", 4, "utf16") == ["😀😀", "😀"]
    assert split("日本語", 6, "bytes") == ["日本", "語"]


def test_letter_and_accent_stay_together() -> None:
    assert split("e\u0301" * 4, 3) == ["e\u0301", "e\u0301", "e\u0301", "e\u0301"]


def in_utf16(part: FormattedText) -> int:
    return length(part.text, "utf16")


def in_html(part: FormattedText) -> int:
    return length(part.text, "bytes") + length(to_html(part), "bytes")


SPANNED = st.lists(
    st.sampled_from(
        ["word ", "**bold text** ", "`a b c` ", "[a link](https://b.c) ", "\n\n", "\n- item ",
         "👩‍👩‍👧", "\n\n> quoted *text*\n\n", "\n\n```py\nx = 1\ny = 2\n```\n\n", "日本。",
         "*a **b** c* "]
    ),
    max_size=60,
).map("".join)  # fmt: skip


@given(SPANNED, st.integers(120, 300), st.sampled_from([in_utf16, in_html]))
def test_formatted_parts_fit_and_together_are_the_whole(
    source: str, limit: int, measure: Measure
) -> None:
    whole = parse(source)
    parts = split_formatted(whole, limit, measure)
    assert "".join(part.text for part in parts) == whole.text
    assert all(part.text and measure(part) <= limit for part in parts)
    start = 0
    for part in parts:
        assert part == whole.slice(start, start + len(part.text))
        start += len(part.text)
        for span in whole.spans:
            if span.start < start < span.end:  # divided: only if it fits into no part
                assert measure(whole.slice(span.start, span.end)) > limit


def test_code_block_that_fits_is_moved_whole() -> None:
    whole = parse("some words before it\n\n```\n" + "code\n" * 10 + "```\nafter")
    parts = split_formatted(whole, 60, in_utf16)
    assert [part.spans for part in parts] == [(), (Span("pre", 0, 49),)]


def test_long_code_block_is_code_in_every_part() -> None:
    whole = parse("```py\n" + "".join(f"line {n}\n" for n in range(40)) + "```")
    parts = split_formatted(whole, 100, in_utf16)
    assert len(parts) > 2
    for part in parts:
        assert part.spans == (Span("pre", 0, len(part.text), "py"),)
        assert part.text.endswith("\n") or part is parts[-1]


def test_formatted_text_is_split_at_a_limit_of_one() -> None:
    whole = parse("**ab** 👩")
    assert [part.text for part in split_formatted(whole, 1, in_utf16)] == ["a", "b", " ", "👩"]
    assert split_formatted(parse(" "), 1, in_utf16) == []
