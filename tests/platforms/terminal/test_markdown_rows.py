"""Markdown in rows: the same rows however the text arrives, and nothing lost at any width."""

from __future__ import annotations

from itertools import cycle

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tertulia.platforms.terminal import markdown_rows
from tertulia.platforms.terminal.markdown_rows import Stream, render, row_width
from tertulia.platforms.terminal.wrap import Row, row_text, text_width

PIECES = [
    "word", "longer-word", "**bold**", "*it*", "`code`", "[l](u)", "a*b", "_x_", "**", "*", "`",
    "~~", "[", "]", "(", "|", "漢字", "🙂", "\n", "\n\n", "- ", "1. ", "# ", "> ", "```", "```py\n",
    "    ", "\\", "|--|", "---", "![i](u)", "&amp;", "x_y", "é", " ",
]  # fmt: skip
WORDS = st.lists(st.sampled_from(PIECES), max_size=14)
TEXTS = WORDS.map("".join) | WORDS.map(" ".join)
CUTS = st.lists(st.integers(1, 7), min_size=1, max_size=5)
WIDTHS = st.sampled_from([5, 12, 30, 60])

ANSWER = """\
## Weather

No, it will be **sunny**, 24 °C; [more](https://example.org).

- first item
- second item which is too long for one row

> a quote

```python
def f(x):
    return x  # comment
```

| day | rain |
|-----|------|
| Mon | no |

Done."""


def texts(rows: list[Row]) -> list[str]:
    return [row_text(row) for row in rows]


def streamed(text: str, cuts: list[int], widths: list[int]) -> list[str]:
    stream = Stream(widths[0])
    final: list[Row] = []
    start = 0
    for cut, width in zip(cycle(cuts), cycle(widths), strict=False):
        stream.width = width
        final += stream.feed(text[start : start + cut])
        start += cut
        if start >= len(text):
            break
    return texts([*final, *stream.finish()])


class TestStream:
    @pytest.mark.parametrize(
        ("text", "rows"),
        [
            ("\\\nword", ["word"]),
            ("a\\\n\\\n\\\nb", ["a", "b"]),
            ("**\\\nb**", ["b"]),
            ("> \\\nw", ["│ w"]),
        ],
    )
    def test_line_break_without_a_line_gives_no_row(self, text: str, rows: list[str]) -> None:
        assert texts(render(text, 12)) == rows
        assert streamed(text, [1], [12]) == rows

    @given(TEXTS, CUTS, WIDTHS)
    @example("**bold**_x_**bold**", [1], 5)  # a mark right behind another style begins something
    @example("1. \n1. word", [1], 12)  # a number alone on its line may be the next item
    def test_any_pieces_give_the_rows_of_the_whole_text(
        self, text: str, cuts: list[int], width: int
    ) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(markdown_rows, "MAX_HELD_ROWS", 10_000)
            assert streamed(text, cuts, [width]) == texts(render(text, width))

    @given(st.text("abcd efgh\n", max_size=200), CUTS)
    def test_resize_neither_loses_nor_repeats_a_character(self, text: str, cuts: list[int]) -> None:
        resized = "".join(streamed(text, cuts, [7, 30, 12]))
        assert "".join(resized.split()) == "".join(text.split())

    @given(TEXTS, CUTS)
    def test_final_rows_and_tail_are_the_whole_text_so_far(
        self, text: str, cuts: list[int]
    ) -> None:
        stream = Stream(30)
        final: list[Row] = []
        start = 0
        for cut in cycle(cuts):
            final += stream.feed(text[start : start + cut])
            start += cut
            shown = "".join(texts([*final, *stream.tail]))
            expected = "".join(texts(render(text[:start], 30)))
            assert "".join(shown.split()) == "".join(expected.split())
            if start >= len(text):
                break

    def test_paragraph_streams_row_by_row(self) -> None:
        stream = Stream(10)
        assert texts(stream.feed("one two three fo")) == ["one two"]
        assert texts(stream.tail) == ["three fo"]

    def test_text_in_progress_stands_where_it_will_be_printed(self) -> None:
        stream = Stream(40)
        shown = texts(stream.feed("One.\n\n| day | rain |\n|---|---|\n| Mon | no |\n"))
        assert [*shown, *texts(stream.tail)] == [
            "One.", "", "day │ rain", "────┼─────", "Mon │ no",
        ]  # fmt: skip

    def test_open_mark_is_taken_literally_after_some_rows(self) -> None:
        stream = Stream(10)
        final = texts(stream.feed("**never closed " + "word " * 40))
        assert final[0] == "**never"
        assert len(texts(stream.tail)) <= markdown_rows.MAX_HELD_ROWS + 1
        assert "".join([*final, *texts(stream.feed("**")), *texts(stream.finish())]).endswith("**")

    def test_code_lines_are_final_when_they_end(self) -> None:
        stream = Stream(20)
        assert texts(stream.feed("```py\nx = 1\ny")) == ["x = 1"]
        assert texts(stream.feed(" = 2\n```\n")) == ["y = 2"]
        assert stream.tail == []

    def test_code_is_neither_wrapped_nor_indented(self) -> None:
        code = "print('" + "x" * 50 + "')"
        assert code in texts(render(f"- item\n\n  ```py\n  {code}\n  ```", 20))

    def test_control_characters_are_shown_not_sent(self) -> None:
        assert "\x1b" not in "".join(texts(render("a\x1b[31mb `\x1b` \x07", 40)))


class TestRender:
    @given(TEXTS, WIDTHS)
    @example("1. ---", 5)
    def test_no_row_is_too_wide(self, text: str, width: int) -> None:
        if "```" in text or "    " in text:
            return  # code is not wrapped
        prefix = 2 * text.count("> ") + 4 * (text.count("- ") + text.count("1. "))
        for row in texts(render(text, width)):
            assert text_width(row) <= max(width, prefix + 2)

    def test_every_kind_of_block(self) -> None:
        assert texts(render(ANSWER, 40)) == [
            "Weather",
            "",
            "No, it will be sunny, 24 °C; more",
            "(https://example.org).",
            "",
            "• first item",
            "• second item which is too long for one",
            "  row",
            "",
            "│ a quote",
            "",
            "def f(x):",
            "    return x  # comment",
            "",
            "day │ rain",
            "────┼─────",
            "Mon │ no",
            "",
            "Done.",
        ]

    def test_styles(self) -> None:
        (row,) = render("**bold** `code`", 40)
        assert [(segment.style, segment.text) for segment in row] == [
            ("bold", "bold"), ("", " "), ("code", "code"),
        ]  # fmt: skip

    def test_rows_stay_narrow_on_wide_terminals(self) -> None:
        assert row_width(200) == markdown_rows.MAX_WIDTH
        assert row_width(60) == 59
        assert row_width(1) == 1
