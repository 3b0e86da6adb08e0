"""Open a store from async code."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Generator
from types import TracebackType
from typing import Any

from tertulia import store as sync
from tertulia.aio._generated import Store
from tertulia.aio.executor import ThreadExecutor
from tertulia.core.clock import Clock
from tertulia.core.settings import Settings


def open(
    where: str | os.PathLike[str], *, settings: Settings | None = None, clock: Clock | None = None
) -> PendingStore:
    """Open a store: `await` it, or use it in `async with`."""
    return PendingStore(where, settings, clock)


class PendingStore:
    """A store that is not open yet: `await` it, or use it in `async with`."""

    def __init__(
        self, where: str | os.PathLike[str], settings: Settings | None, clock: Clock | None
    ) -> None:
        self._where = where
        self._settings = settings
        self._clock = clock
        self._store: Store | None = None

    def __await__(self) -> Generator[Any, None, Store]:
        return self._open().__await__()

    async def __aenter__(self) -> Store:
        self._store = await self._open()
        return self._store

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._store is not None
        await self._store.close()

    async def _open(self) -> Store:
        executor = ThreadExecutor()
        opening = asyncio.ensure_future(
            executor.run(sync.open, self._where, settings=self._settings, clock=self._clock)
        )
        try:
            store = await asyncio.shield(opening)
        except asyncio.CancelledError:
            # No task will get the store: close it as soon as it is open.
            opening.add_done_callback(_close_unclaimed)
            executor.stop()
            raise
        except BaseException:
            executor.stop()
            raise
        executor.batch_calls_of(store)
        return Store(store, executor)


def _close_unclaimed(opening: asyncio.Future[sync.Store]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
