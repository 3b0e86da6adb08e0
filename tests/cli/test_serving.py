"""Serving in a terminal or a pipe: when everything that was said is answered."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tertulia import Settings, Source, aio
from tertulia.cli.run import _has_work


def test_work_that_moves_on_while_it_is_looked_for_is_seen(
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
            return await _has_work(store)

    assert asyncio.run(look())
