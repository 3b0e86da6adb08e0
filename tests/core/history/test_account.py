"""The account of a history against the history itself."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given

from tertulia.core.history.account import Fate, account_for
from tertulia.core.history.formats import Style, render, token_counter
from tertulia.core.history.repair import Block, Result, build_blocks
from tertulia.core.history.window import HistoryBudget, fit_history
from tertulia.core.message import Message
from tests.legality.generated_messages import (
    message_limits,
    rows_of,
    stored_rows,
    token_limits,
)

from .messages import answer, ask, calls, result


def fates_of(rows: list[Message], messages: int = 500, tokens: int | None = None) -> list[str]:
    candidates = build_blocks(rows)
    budget = HistoryBudget(messages, tokens)
    window = fit_history(candidates, budget, token_counter(Style()))
    render(window.blocks, "openai", Style(result_limit=window.result_limit))
    fates = account_for(rows, candidates, window)
    return [fates[row.session, row.seq].fate for row in rows]


@given(stored_rows(), message_limits, token_limits)
def test_what_is_given_is_what_the_model_gets(
    rows: list[Message], messages: int, tokens: int | None
) -> None:
    candidates = build_blocks(rows)
    window = fit_history(candidates, HistoryBudget(messages, tokens), token_counter(Style()))
    rendered = render(window.blocks, "openai", Style(result_limit=window.result_limit))
    fates = account_for(rows, candidates, window)
    assert len(fates) == len(rows)
    assert {fate.fate for fate in fates.values()} <= set(get_args(Fate))

    # The rendered messages are the given rows in the order of their steps, and a note for each
    # call without a result.
    parts: list[Block | Result] = []
    for block in window.blocks:
        parts += [block, *block.results]
    assert len(parts) == len(rendered)
    given_places = []
    for part, message in zip(parts, rendered, strict=True):
        row = part.row
        if row is None:
            assert message["role"] == "tool"
            continue
        place = row.session, row.seq
        fate = fates[place]
        given_places.append(place)
        assert fate.is_given
        content = row.body.get("content")
        if fate.fate == "shown" and isinstance(content, str) and row.author is None:
            is_plain = content.isprintable() and content.strip()
            assert not is_plain or content in str(message["content"])
        if fate.fate == "shortened":
            assert fate.characters > 0
            assert "left out" in str(message)
    assert sorted(given_places) == sorted(place for place, fate in fates.items() if fate.is_given)


def test_each_fate() -> None:
    rows = rows_of(
        [
            ask("old"), answer(),
            ask(""), calls("a", "b"), result("a"), result("a", "again"), answer(""),
            {"role": "system", "content": "x"}, answer("done"),
        ]
    )  # fmt: skip
    expected = ["cut", "cut", "mended", "mended", "shown", "mended", "mended", "hidden", "shown"]
    assert fates_of(rows, messages=6) == expected


@pytest.mark.parametrize("place", ["result", "arguments"])
def test_what_is_shortened_tells_by_how_much(place: str) -> None:
    long = "x" * 50_000
    step = calls("a", arguments='{"text": "' + long + '"}') if place == "arguments" else calls("a")
    rows = rows_of([ask(), step, result("a", long if place == "result" else "ok")])
    candidates = build_blocks(rows)
    window = fit_history(candidates, HistoryBudget(10, 4000), token_counter(Style()))
    fates = account_for(rows, candidates, window)
    fate = fates[1, 3 if place == "result" else 2]
    assert fate.fate == "shortened"
    assert 30_000 < fate.characters <= 50_000
