"""The terminal: waiting until everything that was typed is answered."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tertulia import Settings, Source, aio
from tertulia.cli.terminal_chat import has_unfinished_work


def test_work_that_moves_between_queries_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def look() -> bool:
        async with aio.open(str(tmp_path / "talk.db"), settings=Settings(zone="UTC")) as store:
            await store.inbox.put(Source.local(), "one", message_id="1")
            find = store.inbox.find

            async def find_and_move(**asked: Any) -> Any:
                found = await find(**asked)
                await store.inbox.claim()
                return found

            monkeypatch.setattr(store.inbox, "find", find_and_move)
            return await has_unfinished_work(store)

    assert asyncio.run(look())
