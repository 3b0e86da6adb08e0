"""A turn leaves nothing behind that only Python's collector would find: that stops every thread.

On SQLite: with PostgreSQL a conflict is an error of the driver's, and that holds the frames it came
from.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from tertulia import Source, ToolCall, Usage, aio
from tests.garbage import collected
from tests.records.store_inspection import ANA, FAST, open_apart, without_index

TURNS = 50


def few(found: Counter[str]) -> dict[str, int]:
    """Kinds of our own of which there is one for each turn, or more."""
    ours = {kind: count for kind, count in found.items() if kind.startswith("tertulia.")}
    return {kind: count for kind, count in ours.items() if count >= TURNS}


def test_sync_turn_leaves_no_cyclic_garbage(tmp_path: Path) -> None:
    with open_apart(str(tmp_path / "talk.db")) as store, collected() as garbage:
        for _ in range(TURNS):
            with store.turn(ANA, "look") as turn:
                turn.add_assistant(None, tool_calls=[ToolCall("c1", "look")])
                turn.add_tool_result("c1", "blue")
                turn.history(max_tokens=8000)
                turn.add_assistant("Blue.", usage=Usage(5, model="m"), deliver="origin")
            store.transcript(turn.session.id).append({"role": "user", "content": "thanks"})
        assert few(garbage()) == {}


@pytest.mark.parametrize("at_once", [1, 10])
def test_async_turn_leaves_no_cyclic_garbage(tmp_path: Path, at_once: int) -> None:
    async def talk(store: aio.Store, chat: int) -> None:
        source = Source("telegram", str(chat), user_id=str(chat))
        for _ in range(TURNS // at_once):
            async with store.turn(source, "look") as turn:
                await turn.history(max_tokens=8000)
                await turn.add_assistant("Blue.", usage=Usage(5, model="m"))

    async def play() -> dict[str, int]:
        async with aio.open(tmp_path / "talk.db", settings=FAST) as store:
            without_index(store.sync)
            await asyncio.gather(*(talk(store, chat) for chat in range(at_once)))
            with collected() as garbage:
                await asyncio.gather(*(talk(store, chat) for chat in range(at_once)))
                return few(garbage())

    assert asyncio.run(play()) == {}
