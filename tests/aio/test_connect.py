"""Open a store from async code: awaited, in `async with`, failed and cancelled."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

import tertulia
from tertulia import Source, Store, StoreError
from tertulia import store as sync

ANA = Source("telegram", "42", user_id="42")
# The longest wait for an event that must come, on a machine under any load.
PATIENCE = 60.0


def test_open_can_be_awaited_or_used_as_a_context_manager(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with tertulia.aio.open(tmp_path / "talk.db") as store:
            await store.sessions.open(ANA)
        with pytest.raises(
            StoreError, match="The store is closed"
        ):  # closed at the end of the block
            await store.sessions.count()
        store = await tertulia.aio.open(tmp_path / "talk.db")
        assert store.path == store.sync.path
        assert await store.sessions.count() == 1
        await store.close()

    asyncio.run(scenario())


def test_error_of_open_reaches_the_caller(tmp_path: Path) -> None:
    path = tmp_path / "talk.db"
    path.write_text("this is not a database, and long enough to be read as the head of one " * 9)

    async def scenario() -> None:
        with pytest.raises(tertulia.Error):
            await tertulia.aio.open(path)

    asyncio.run(scenario())


def test_store_of_a_cancelled_open_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, go_on, closed = threading.Event(), threading.Event(), threading.Event()
    open_store, close_store = sync.open, Store.close

    def slow_open(where: Path, **options: None) -> Store:
        started.set()
        go_on.wait(PATIENCE)
        return open_store(where, **options)

    def noted_close(store: Store) -> None:
        close_store(store)
        closed.set()

    monkeypatch.setattr(sync, "open", slow_open)
    monkeypatch.setattr(Store, "close", noted_close)

    async def open_it() -> None:
        await tertulia.aio.open(tmp_path / "talk.db")

    async def scenario() -> None:
        opening = asyncio.ensure_future(open_it())
        await asyncio.to_thread(started.wait, PATIENCE)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        go_on.set()
        assert await asyncio.to_thread(closed.wait, PATIENCE)

    asyncio.run(scenario())
