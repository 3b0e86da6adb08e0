from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.text.search_terms import SNIPPET, _fold_any, fold_text, parse_query, snippet

any_text = st.text(alphabet=st.characters(exclude_categories=()))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello World", ["hello", "world"]),
        ("CAFÉ Straße", ["cafe", "strasse"]),
        ("ﬁle ①", ["file", "1"]),
        ("明天見", ["明", "天", "見"]),
        ("a\ud800b", ["a", "b"]),
    ],
)
def test_text_is_folded_to_searchable_words(text: str, words: list[str]) -> None:
    assert fold_text(text).split() == words


@given(
    st.lists(
        st.sampled_from([*"aZ9 '\n", "word ", *"–“…™≠é\u0338\u3099\u0301ẞİςㅏ㉠฿ⒶＡ\ud800🦜\ufe0f"])
    )
)
def test_text_of_mostly_ascii_is_folded_by_the_general_rule(pieces: list[str]) -> None:
    for text in ("".join(pieces), "".join(pieces) + " plain" * 20):
        assert fold_text(text) == _fold_any(text)


@pytest.mark.parametrize("joined", ["か\u3099", "\u1100\u1161", "\u13a0", "é", "e\u0301"])
def test_letters_in_ascii_are_folded_by_the_general_rule(joined: str) -> None:
    text = f"{joined} – " + "a plain text of ASCII but for that " * 4
    assert fold_text(text) == _fold_any(text)


def test_every_mark_beside_ascii_is_folded_by_the_general_rule() -> None:
    marks = [char for char in map(chr, range(sys.maxunicode)) if is_mark(char)]
    assert len(marks) > 7_000
    for char in marks:
        text = f"A{char}{char}= ㉠{char}A" + " plain text" * 20
        assert fold_text(text) == _fold_any(text), ascii(char)


def is_mark(char: str) -> bool:
    return unicodedata.category(char)[0] in "PS" and not char.isascii()


@given(any_text)
def test_any_text_can_be_folded_and_stored(text: str) -> None:
    fold_text(text).encode("utf-8")


@pytest.mark.parametrize(
    ("query", "phrases"),
    [
        ("two words", [("two", False), ("words", False)]),
        ('"One Phrase" more', [("one phrase", False), ("more", False)]),
        ("begin*", [("begin", True)]),
        ("漢字", [("漢 字", False)]),
        ("- ... **", []),
        ('"unclosed', [("unclosed", False)]),
    ],
)
def test_query_is_split_into_phrases(query: str, phrases: list[tuple[str, bool]]) -> None:
    assert parse_query(query) == phrases


def test_snippet_surrounds_the_first_phrase() -> None:
    text = "start " * 100 + "the needle is here " + "end " * 100
    part = snippet(text, parse_query("needle"))
    assert "needle" in part
    assert part.startswith("…")
    assert part.endswith("…")
    assert len(part) == SNIPPET + 2


def test_snippet_of_a_short_text_is_the_whole_text() -> None:
    assert snippet("two\nlines", parse_query("two")) == "two lines"


def test_snippet_without_a_match_is_the_beginning() -> None:
    assert snippet("word " * 100, parse_query("absent")).startswith("word word")
