"""Texts and phrases in the language of PostgreSQL's search index."""

from __future__ import annotations

import psycopg
import pytest

from tertulia.core.text.search_terms import Phrase
from tertulia.storage.postgres.search import to_tsquery, to_tsvector


def test_words_have_their_positions() -> None:
    assert to_tsvector("the cat, the dog") == "'the':1,3 'cat':2 'dog':4"


def test_positions_and_words_are_limited() -> None:
    assert len(to_tsvector("a " * 300).split(",")) == 255
    late = to_tsvector("a " * 16_383 + "late")
    assert late.endswith(" 'late'")
    assert to_tsvector("x" * 300) == f"'{'x' * 200}':1"


def test_words_of_a_phrase_follow_each_other() -> None:
    assert to_tsquery([("red house", False), ("gard", True)]) == (
        "('red' <-> 'house') & ('gard':*)"
    )
    assert to_tsquery([("…", False)]) == ""


@pytest.mark.parametrize(
    ("text", "phrases", "is_match"),
    [
        ("a red house", [("red house", False)], True),
        ("a house so red", [("red house", False)], False),
        ("the gardens", [("gard", True)], True),
        ("the gardens", [("gard", False)], False),
        ("the gardens", [("the", False), ("cat", False)], False),
        ("x" * 5000, [("x" * 5000, False)], True),
        ("a " * 70_000, [("a", False)], True),
    ],
)
def test_server_matches_as_expected(
    address: str, text: str, phrases: list[Phrase], is_match: bool
) -> None:
    with psycopg.connect(address) as connection:
        row = connection.execute(
            "select %s::tsvector @@ %s::tsquery", (to_tsvector(text), to_tsquery(phrases))
        ).fetchone()
    assert row == (is_match,)
