"""Long texts in parts: nothing lost, nothing too long, code blocks that look right."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tertulia.core.platform import LengthUnit
from tertulia.core.text.split import length, split

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
