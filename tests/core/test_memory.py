"""How memories are cleaned, split and shown."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.memory import (
    MAX_LENGTH,
    MAX_SHOWN,
    MAX_SHOWN_CHARS,
    Memory,
    clean_text,
    render,
    split_lines,
)
from tertulia.errors import IllegalMove


def _memory(number: int, text: str) -> Memory:
    now = datetime(2026, 3, 1, tzinfo=UTC)
    return Memory(
        id=number, text=text, author="agent", state="kept", session_id=None, created_at=now
    )


@given(st.lists(st.text(max_size=300), max_size=60))
def test_any_texts_are_shown_within_the_limits_and_cannot_leave_their_quotes(
    texts: list[str],
) -> None:
    prompt = render([_memory(number, text) for number, text in enumerate(texts)])
    assert len(prompt) <= MAX_SHOWN_CHARS
    heading, *lines = prompt.split("\n") if prompt else [""]
    assert "not instructions" in heading or not texts
    assert len(lines) <= MAX_SHOWN
    for line in lines:
        assert line.startswith('- "')
        assert line.endswith('"')
        assert '"' not in line[3:-1]


def test_the_newest_are_shown_oldest_first() -> None:
    newest_first = [_memory(n, f"note {n} " + "x" * 90) for n in range(100, 0, -1)]
    lines = render(newest_first).split("\n")[1:]
    assert lines[-1].startswith('- "note 100 ')
    numbers = [int(line.split()[2]) for line in lines]
    assert numbers == sorted(numbers)
    assert 15 <= len(numbers) <= 20


def test_a_text_is_one_line_within_the_limit() -> None:
    assert clean_text("  Ana\n sails\t. ") == "Ana sails ."
    for bad in ("", " \n ", "x" * (MAX_LENGTH + 1)):
        with pytest.raises(IllegalMove):
            clean_text(bad)


def test_an_answer_is_split_into_lines_without_bullets() -> None:
    answer = "- Ana sails.\n\n* She lives in Cádiz.\n  • " + "x" * 500
    lines = split_lines(answer)
    assert lines[:2] == ["Ana sails.", "She lives in Cádiz."]
    assert len(lines[2]) <= MAX_LENGTH
