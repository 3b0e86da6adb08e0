"""Markdown as text with spans: nothing lost, nobody pinged, spans that nest."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from html.parser import HTMLParser
from itertools import combinations
from typing import get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from tertulia.core.text.markdown import _parse_markup, _read_lines, format_parts, parse
from tertulia.core.text.spans import FormattedText, Span, SpanKind
from tertulia.core.text.split import length

# Pieces that make every construct of Markdown likely, well-formed or not.
PIECES = st.lists(
    st.sampled_from(
        [
            *(
                "word",
                "ünï",
                "日本語",
                "👩‍👩‍👧",
                " ",
                " ",
                "\n",
                "\n\n",
                "\\",
                "&amp;",
                "<b>",
                "@ana",
            ),
            *("*", "**", "_", "__", "~~", "`", "``", "\n```\n", "\n```py\n", "\n~~~ a b\n"),
            *("\n# ", "\n- ", "\n  - ", "\n1. ", "\n7) ", "\n> ", "\n>> ", "\n---\n", "\n    "),
            *("[", "]", "](https://a.b/c)", "](tg://user?id=1)", "![", "<https://x.y>", "[a]: b\n"),
            *("\n| a | b |\n|---|---|\n", "| c | *d* |\n", "|", "\t", "\r\n", "\x00", "\u2028"),
        ]
    ),
    max_size=40,
).map("".join)
SOURCES = PIECES | st.text(max_size=200)
# Texts that are mostly lines and bullets, with what could turn a line into something else.
LINES = st.lists(
    st.sampled_from(
        [
            *("word", "word", "two words", "snake_case", "日本語", "“quoted”", "(a)", "[b]", " "),
            *("\n", "\n", "\n\n", "\n\n\n", "\n- ", "\n- item", "\n- item\n", "- ", "-", "_", "!"),
            *(
                "1",
                "1.",
                "1)",
                "#",
                "# ",
                ">",
                "|",
                "|-|",
                ":-:",
                "=",
                "===",
                "---",
                "+ ",
                "~",
                "*",
            ),
            *(
                "](x)",
                "]",
                "[",
                "![",
                "&amp;",
                "&",
                "<",
                "`",
                "\\",
                "\t",
                "\xa0",
                "\u2028",
                "\x0b",
                ":",
            ),
        ]
    ),
    max_size=12,
).map("".join)
# Written by the formatter itself: bullets, rules, lines of tables.
DECORATION = re.compile(r"[•─|+\-\s\u2060]")


class TextOfHtml(HTMLParser):
    """Collects the text of the HTML that another renderer makes of the same Markdown."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self._lists: list[int | None] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag in ("ol", "ul"):
            start = int(values.get("start") or 1)
            self._lists.append(start if tag == "ol" else None)
        elif tag == "li" and (number := self._lists[-1]) is not None:
            self.text += f"{number}."
            self._lists[-1] = number + 1
        elif tag == "img":
            self.text += values.get("alt") or ""

    def handle_endtag(self, tag: str) -> None:
        if tag in ("ol", "ul"):
            self._lists.pop()

    def handle_data(self, data: str) -> None:
        self.text += data


def render_fence(
    renderer: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType
) -> str:
    """Return what nobody may lose: the text after the fence too, unless it is only a language."""
    fence = tokens[index]
    language, _, rest = fence.info.strip().partition(" ")
    text = rest + fence.content
    return escapeHtml(text if text.strip() else language)


def text_by_html(source: str) -> str:
    """Return the text of a source by the HTML renderer of the parser, which we do not use."""
    parser = MarkdownIt("commonmark", {"html": False, "breaks": True, "maxNesting": 60})
    parser.enable(["table", "strikethrough"])
    parser.disable(["lheading", "reference", "html_block", "html_inline"])
    parser.add_render_rule("fence", render_fence)
    reader = TextOfHtml()
    reader.feed(parser.render(source))
    reader.close()
    return reader.text


def letters(text: str) -> str:
    return DECORATION.sub("", text)


def assert_nested(formatted: FormattedText) -> None:
    for span in formatted.spans:
        assert span.kind in get_args(SpanKind)
        assert 0 <= span.start < span.end <= len(formatted.text)
    for first, second in combinations(formatted.spans, 2):
        # In order: outer before inner, otherwise by their start.
        assert (first.start, -first.end) <= (second.start, -second.end)
        is_apart = first.end <= second.start
        is_inside = first.start <= second.start and second.end <= first.end
        assert is_apart or is_inside


@given(st.lists(st.sampled_from(["word", "ünï", "日本", "*", "_", "`", "\n", "\n\n", "\n- ", "\n> ",
                                 "\n# ", "\n1. ", "~~", "**", " ", "\n```\n", "\\", "👩‍👩‍👧"]),
                max_size=40).map("".join))  # fmt: skip
@example("* * *\n\n* a\n* b")
@example("1. ```word")
@example("```word and more\ncode\n```")
@example("1. a\n\n   b\n   1. c\n\n2. d")
def test_text_without_markup_is_that_of_another_renderer(source: str) -> None:
    formatted = parse(source)
    expected = letters(text_by_html(source))
    if expected:
        assert letters(formatted.text) == expected


@given(LINES | st.text(max_size=40))
@example("a\n- b\n- c\nd\n\n\n\ne")
@example("- a\n\nb\n\n- c")
@example("- a\n- b\n\n- c")
@example("- a\n- b\nc\n\n- d")
@example("- a\nb\n\n- c\n- d")
@example("a\n-|-")
@example("# a")
@example("a\n1. b")
@example("a\n> b")
@example("    a")
@example("a \nb")
@example("a_b __c__")
@example("[a](b)")
def test_lines_read_without_the_parser_are_what_the_parser_reads(source: str) -> None:
    lines = _read_lines(source)
    assert lines is None or lines == _parse_markup(source)


@pytest.mark.parametrize(
    "source",
    ["Yes.", "One: two, three!\n\nFour?", "These:\n- a_b\n- [c] “d”\n\nThat is all."],
)  # fmt: skip
def test_plain_answers_are_read_without_the_parser(source: str) -> None:
    assert _read_lines(source) == FormattedText(source.replace("\n- ", "\n• "))


@given(SOURCES)
@example("```a")
@example("``` a b c\n```")
@example("[](https://a.b/c)")
@example("[![a](https://a.b/c)](https://x.y)")
@example("| a | b |\n|---|---|\n| [c](https://a.b/c) | d |")
@example(">" * 200 + "word")
@example("- " * 200 + "word")
def test_no_word_is_lost(source: str) -> None:
    formatted = parse(source)
    remaining = formatted.text + "".join(span.data or "" for span in formatted.spans)
    for word in ("word", "ünï", "日本語", "ana", "https://a.b/c", "https://x.y", "user"):
        assert remaining.count(word) >= source.count(word), word


@given(SOURCES)
def test_spans_are_apart_or_inside_each_other(source: str) -> None:
    assert_nested(parse(source))


@given(SOURCES, st.integers(30, 200))
def test_parts_are_within_the_limit_and_nobody_is_pinged(source: str, limit: int) -> None:
    def measure(part: FormattedText) -> int:
        return length(part.text, "utf16")

    parts = format_parts(source, limit, measure, breaks_mentions=True)
    for part in parts:
        assert part.text == part.text.strip() != ""
        assert length(part.text, "utf16") <= limit
        assert_nested(part)
        code = [span for span in part.spans if span.kind in ("code", "pre")]
        for match in re.finditer(r"(?<!\w)@\w", part.text):
            assert any(span.start <= match.start() < span.end for span in code)
        links = [span.data or "" for span in part.spans if span.kind == "link"]
        assert all(url.lower().startswith(("https:", "http:", "mailto:")) for url in links)
    whole = parse(source).text
    assert letters("".join(part.text for part in parts)) == letters(whole)


@pytest.mark.parametrize(
    ("source", "text", "spans"),
    [
        ("plain\ntext", "plain\ntext", []),
        ("**a *b***", "a b", [("bold", 0, 3, None), ("italic", 2, 3, None)]),
        ("~~a~~ `b*c*`", "a b*c*", [("strike", 0, 1, None), ("code", 2, 6, None)]),
        ("## Title\ntext", "Title\n\ntext", [("heading", 0, 5, "2")]),
        ("[a](https://b.c)", "a", [("link", 0, 1, "https://b.c")]),
        ("<https://b.c>", "https://b.c", [("link", 0, 11, "https://b.c")]),
        ("[a](tg://user?id=1)", "a (tg://user?id=1)", []),
        ("[a](javascript:x)", "[a](javascript:x)", []),
        ("![a](https://b.c)", "a", [("link", 0, 1, "https://b.c")]),
        ("[](https://b.c)", "https://b.c", [("link", 0, 11, "https://b.c")]),
        ("```py\nx\n\ny\n```", "x\n\ny", [("pre", 0, 4, "py")]),
        ("```\nnot closed", "not closed", [("pre", 0, 10, None)]),
        ("```some prose here\nx\n```", "prose here\nx", [("pre", 0, 12, "some")]),
        ("- a\n- b\n  - c\n1. d", "• a\n• b\n   • c\n1. d", []),
        ("3. a\n4. b", "3. a\n4. b", []),
        ("list:\n- a\n- b", "list:\n• a\n• b", []),
        ("list:\n\n- a", "list:\n\n• a", []),
        ("- ```\n  x\n  ```", "• \nx", [("pre", 3, 4, None)]),
        ("> a\n>> b\n\nc", "a\n\nb\n\nc", [("quote", 0, 4, None)]),
        ("a\n\n---\n\nb", "a\n\n────────\n\nb", []),
        ("a_b_c 2*3*4 @ana", "a_b_c 234 @ana", [("italic", 7, 8, None)]),
        ("Head\n----\ntext", "Head\n\n────────\n\ntext", []),
        ("[a]: https://b.c", "[a]: https://b.c", []),
        ("<b>a</b> &lt; &copy;", "<b>a</b> < ©", []),
        ("| a | b |\n|---|---|\n| 日 | c |", "a  | b\n---+--\n日 | c", [("pre", 0, 19, None)]),
        ("***", "────────", []),
        ("~~~~", "~~~~", []),
        ("  ", "", []),
        ("\ud800", "?", []),
    ],
)
def test_markdown_becomes_text_and_spans(
    source: str, text: str, spans: list[tuple[str, int, int, str | None]]
) -> None:
    formatted = parse(source)
    assert formatted.text == text
    assert [(span.kind, span.start, span.end, span.data) for span in formatted.spans] == spans


def test_wide_table_keeps_its_links_and_is_not_padded() -> None:
    wide = "word " * 15
    formatted = parse(f"| head | b |\n|---|---|\n| {wide} | [c](https://d.e) |")
    assert formatted.text == f"head | b\n{wide.strip()} | c"
    assert formatted.spans == (
        Span("bold", 0, 8),
        Span("link", len(formatted.text) - 1, len(formatted.text), "https://d.e"),
    )


HOSTILE = {
    "brackets": "[a" * 30_000,
    "pictures": "![a" * 30_000,
    "links": "[a](" * 20_000,
    "stars": "*a " * 10_000,
    "quotes": ">" * 60_000 + "a",
    "lists": "- " * 40_000 + "a",
    "backticks": "a" + "`" * 90_000 + "a",
    "cells": "| a " * 20_000,
    "steps": "\n".join(" " * depth + "- a" for depth in range(400)),
    "huge": "**a**" * 25_000,
    "items": "- a\n" * 25_000,
    "blank lines": "- a" + "\n" * 90_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_read_and_not_lost(name: str) -> None:
    assert parse(HOSTILE[name]).text.count("a") == HOSTILE[name].count("a")


def test_parser_is_imported_only_when_it_is_used() -> None:
    program = (
        "import sys, tertulia, tertulia.core.text.markdown as m\n"
        "assert 'markdown_it' not in sys.modules\n"
        "m.parse('a')\n"
        "assert 'markdown_it' not in sys.modules\n"
        "m.parse('*a*')\n"
        "assert 'markdown_it' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
