"""Whole turns for tests: one that is answered, one that is interrupted."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from tertulia import Source, Store, Turn
from tests.records.store_inspection import ANA


class Broken(Exception):
    """What an agent raises here, and nothing else does."""


def exchange(store: Store, text: str, answer: str, *, source: Source = ANA, **options: Any) -> Turn:
    """A whole turn without tools."""
    with store.turn(source, text, **options) as turn:
        turn.add_assistant(answer)
    return turn


def cut_off(store: Store, text: str, *steps: Callable[[Turn], object], **options: Any) -> Turn:
    """A turn whose agent fails after some steps."""
    turn = store.turn(ANA, text, **options)
    with contextlib.suppress(Broken), turn:
        for step in steps:
            step(turn)
        raise Broken
    return turn
