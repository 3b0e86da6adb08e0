"""Delays between attempts: doubled, bounded, with jitter."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tertulia
from tertulia.core.backoff import Backoff

BACKOFF = Backoff(first=2, longest=60)


def test_delays_double_up_to_the_longest() -> None:
    assert [BACKOFF.delay(attempts, 0.0) for attempts in range(1, 8)] == [2, 4, 8, 16, 32, 60, 60]


def test_jitter_takes_off_up_to_half() -> None:
    assert [BACKOFF.delay(2, chance) for chance in (0.0, 0.5, 1.0)] == [4, 3, 2]


@given(st.integers(1, 10**9), st.floats(0, 1))
def test_every_delay_is_within_its_bounds(attempts: int, chance: float) -> None:
    assert 1 <= BACKOFF.delay(attempts, chance) <= 60


@pytest.mark.check
def test_library_does_not_draw_from_the_generator_of_the_program() -> None:
    """A program that seeds `random` gets the same numbers whether it uses a store or not."""
    package = Path(tertulia.__file__).parent
    draws = re.compile(r"\brandom\.(random|uniform|choice|choices|randint|randrange|shuffle)\(")
    users = [str(path) for path in package.rglob("*.py") if draws.search(path.read_text("utf-8"))]
    assert users == []
