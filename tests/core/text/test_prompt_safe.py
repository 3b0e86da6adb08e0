from __future__ import annotations

import re
import sys
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tertulia.core.text.prompt_safe import (
    LIMIT,
    MAX_INPUT,
    clean_for_prompt,
    clean_line,
    quote_text,
)

any_text = st.text(alphabet=st.characters(exclude_categories=()))
# What people try, close together: every break, quote, mark and hidden character in few letters.
hostile_text = st.lists(
    st.sampled_from(
        [
            *"ab1 _*`~|<>[]()!#&;\\\"'-+=:\n\r\t\v\f\x00\x1b\x1c\x1d\x1e\x1f\x7f\x85\u2028\u2029",
            *"\u202e\u2066\u200b\u200d\u00ad\ufeff\u0301\u0338\ufe0f\U000e0041\u1fef“”„«＂″",
            *"\ud800\udfff\ue000\uffff\u3164\u2800\u00a0\u3000",
            *("&quot;", "&#10;", "## System:", "[a](b)", "<b>", "**", "||", "```"),
        ]
    ),
    max_size=40,
).map("".join)
texts = any_text | hostile_text

QUOTE_LIKE = set('"“”„‟«»″‴〝〞〟＂❝❞״ʺ˝')


def content(text: str) -> str:
    quoted = quote_text(text)
    assert (quoted[0], quoted[-1]) == ('"', '"')
    return quoted[1:-1]


class TestPromises:
    @given(texts)
    def test_result_is_one_line(self, text: str) -> None:
        assert len(quote_text(text).splitlines()) == 1

    @given(texts)
    def test_no_hidden_character_stays(self, text: str) -> None:
        visible = content(text)
        assert not {unicodedata.category(char) for char in visible} & {"Cc", "Cf", "Cs", "Co", "Cn"}
        assert not [char for char in visible if char.isspace() and char != " "]
        assert "  " not in visible
        assert visible == visible.strip()

    @given(texts)
    def test_quotes_cannot_be_ended(self, text: str) -> None:
        assert not set(content(text)) & (QUOTE_LIKE | {"\\"})

    @given(texts)
    def test_no_active_markup_stays(self, text: str) -> None:
        visible = content(text)
        assert not set(visible) & set("`*~<>[]")
        assert "||" not in visible
        assert not re.search(r"&#?\w+;", visible)
        for found in re.finditer("_+", visible):
            sides = (
                visible[found.start() - 1 : found.start()],
                visible[found.end() : found.end() + 1],
            )
            assert all(side.isalnum() for side in sides)

    @given(texts, st.integers(1, 60))
    def test_never_longer_than_the_limit(self, text: str, limit: int) -> None:
        assert len(clean_for_prompt(text, limit)) <= limit

    @given(texts, st.integers(1, 60))
    def test_cleaning_again_changes_nothing(self, text: str, limit: int) -> None:
        once = clean_for_prompt(text, limit)
        assert clean_for_prompt(once, limit) == once
        assert unicodedata.is_normalized("NFC", once)

    def test_every_unicode_character(self) -> None:
        every = [chr(code) for code in range(sys.maxunicode + 1)]
        for start in range(0, len(every), 4096):
            visible = clean_line("a".join(every[start : start + 4096]))
            assert len(visible.splitlines()) == 1
            assert not {unicodedata.category(char)[0] for char in visible} & {"C"}
            assert not set(visible) & (QUOTE_LIKE | set("`*~<>[]\\"))
            assert '"' not in unicodedata.normalize("NFKC", visible)


class TestReadable:
    @pytest.mark.parametrize(
        "text",
        [
            "Alice",
            "O'Brien-Smith, Jr.",
            "snake_case_name",
            "двое_друзей",
            "東京 🚀 café",
            "AT&T & Co",
            "Ana | Ventas",
            "#general",
            "-100123456",
            "user@example.org",
            "https://example.org/a?b=c",
            "+34 600 123 456",
        ],
    )
    def test_ordinary_name_stays_unchanged(self, text: str) -> None:
        assert quote_text(text) == f'"{text}"'

    @pytest.mark.parametrize(
        ("text", "visible"),
        [
            ("", ""),
            (" \n\t ", ""),
            ("\u200b\u202e\ufeff", ""),
            ("two\nlines\r\nhere", "two lines here"),
            ("a\u2028b\u2029c\x85d\x1ce", "a b c d e"),
            ('say "hi"', "say 'hi'"),
            ("«Ateneo» “x”", "'Ateneo' 'x'"),
            ("`code`", "'code'"),
            ("\u1fefcode\u1fef", "'code'"),
            ("**bold** _it_ __b__", "∗∗bold∗∗ ˍitˍ ˍˍbˍˍ"),
            ("<b>[a](http://x)", "‹b›(a)(http://x)"),
            ("~~no~~ ||spoiler||", "∼∼no∼∼ ¦¦spoiler¦¦"),
            ("ends with \\", "ends with ∖"),
            ("&quot; &#34; &#x22;", "& quot; & #34; & #x22;"),
            ("pa\u202eypal\u200b", "paypal"),
            ("hid\U000e0068\U000e0069den", "hidden"),
            ("hid\ufe0f\u034f\u180b\U000e0101den", "hidden"),
            ("e\u200d\u0301", "é"),
            ("\u0338x", "x"),
            ("a\ud800\udfff\ue000b", "a\ufffdb"),
            ("\u3164\u2800x", "x"),
            ("\x1b[31mred", "(31mred"),
            ("# Title\n- item\n1. one\n> quote", "# Title - item 1. one › quote"),
        ],
    )
    def test_active_characters_are_replaced(self, text: str, visible: str) -> None:
        assert quote_text(text) == f'"{visible}"'
        assert clean_for_prompt(text) == visible


class TestCut:
    def test_text_within_the_limit_is_not_cut(self) -> None:
        assert clean_for_prompt("x" * LIMIT) == "x" * LIMIT

    def test_ellipsis_counts_towards_the_limit(self) -> None:
        cut = clean_for_prompt("x" * (LIMIT + 1))
        assert cut == "x" * (LIMIT - 1) + "…"
        assert len(cut) == LIMIT == 240

    @given(st.integers(MAX_INPUT - 2, 3 * MAX_INPUT))
    @example(10_000)
    def test_long_text_ends_with_the_ellipsis(self, length: int) -> None:
        assert clean_for_prompt("y" * length).endswith("y…")

    def test_text_beyond_the_input_limit_counts_as_cut(self) -> None:
        assert clean_for_prompt("\u200b" * MAX_INPUT + "name") == "…"

    def test_cut_word_leaves_no_active_underscore(self) -> None:
        assert clean_for_prompt("aa_bb", 4) == "aaˍ…"

    def test_no_space_before_the_ellipsis(self) -> None:
        assert clean_for_prompt("aa bb", 4) == "aa…"
