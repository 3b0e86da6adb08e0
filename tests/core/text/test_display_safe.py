from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.text.display_safe import display_json, display_line, display_text

any_text = st.text(alphabet=st.characters(exclude_categories=()))


@given(any_text)
def test_no_control_character_but_line_breaks_stays(text: str) -> None:
    safe = display_text(text)
    assert not [
        char for char in safe if unicodedata.category(char) in ("Cc", "Cs") and char != "\n"
    ]
    assert not set(safe) & set("\u202e\u2066\u2028\u2029\u061c")


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("two\r\nlines", "two\nlines"),
        ("\x1b[2J", "␛[2J"),
        ("a\tb", "a    b"),
        ("a\u202eb", "ab"),
        ("\x9b1m\ud800\x7f", "\N{REPLACEMENT CHARACTER}1m\N{REPLACEMENT CHARACTER}␡"),
        ("naïve 漢字 🎉", "naïve 漢字 🎉"),
    ],
)
def test_visible_text_stays_and_control_characters_become_symbols(text: str, safe: str) -> None:
    assert display_text(text) == safe


def test_one_line_is_cut_at_the_limit() -> None:
    assert display_line("two\nlines  here") == "two lines here"
    assert display_line("two\nlines here", limit=10) == "two lines…"
    assert display_line("exactly", limit=7) == "exactly"


@given(st.dictionaries(any_text, any_text, max_size=3))
def test_json_is_safe_and_reads_back(value: dict[str, str]) -> None:
    text = display_json(value)
    assert json.loads(text) == value
    assert display_text(text) == text.replace("\t", "    ")
