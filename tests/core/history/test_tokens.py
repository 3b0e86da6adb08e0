"""The estimate of tokens, against what a tokenizer counted.

`measured_tokens.json` holds texts of many kinds with the number of tokens that the o200k vocabulary
makes of each, the one of OpenAI's models since GPT-4o. It was measured once with a tokenizer, so
that no test needs one.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.history.tokens import MAX_CHARACTERS_PER_TOKEN, estimate_tokens

MEASURED: dict[str, tuple[int, str]] = {
    kind: (sample["tokens"], sample["text"])
    for kind, sample in json.loads(
        Path(__file__).with_name("measured_tokens.json").read_text("utf-8")
    ).items()
}


@pytest.mark.parametrize("kind", MEASURED)
def test_estimate_is_close_and_rather_too_high(kind: str) -> None:
    counted, text = MEASURED[kind]
    assert 0.85 <= estimate_tokens(text) / counted <= 1.35


def test_estimate_of_all_kinds_together_is_close() -> None:
    counted = sum(count for count, _ in MEASURED.values())
    estimated = sum(estimate_tokens(text) for _, text in MEASURED.values())
    assert 1.0 <= estimated / counted <= 1.2


@pytest.mark.parametrize("kind", MEASURED)
def test_estimate_grows_linearly_with_the_text(kind: str) -> None:
    _, text = MEASURED[kind]
    assert estimate_tokens(text * 50) == pytest.approx(50 * estimate_tokens(text), rel=0.05)


def test_empty_text_has_no_tokens_and_any_other_has_some() -> None:
    assert estimate_tokens("") == 0
    assert 1 <= estimate_tokens(" ") <= estimate_tokens(".") <= 2
    assert 8 <= estimate_tokens("a b c d e f g h") <= 10


texts = st.text(st.characters(exclude_categories=()) | st.sampled_from(" \naé"), max_size=200)
pieces = st.sampled_from(
    ["a ", "   ", "\n", "word ", ".", "0", "é a a a a a a a ", "漢", "🎉", "\ud83d"]
)


@given(texts | st.builds(lambda piece, times: piece * times, pieces, st.integers(1, 500)))
def test_any_text_can_be_estimated(text: str) -> None:
    """Halves of surrogate pairs too; and a text of many characters is never few tokens."""
    assert (estimate_tokens(text) > 0) == bool(text)
    assert estimate_tokens(text) * MAX_CHARACTERS_PER_TOKEN >= len(text)
