"""One look at the store for all open pages: it tells them when to load again, and lets them share.

While any page is open, one task asks the database every half second whether anything was
committed; that is all that an idle page costs. When there was something, each page is loaded again,
at most once a second; pages of the same person at the same address are loaded once. All these loads
together take about a twentieth of the time, however many pages are open.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final

from tertulia.console.page_definition import LoadedPage
from tertulia.errors import Error

log = logging.getLogger("tertulia.console")

_LOOK_SECONDS: Final = 0.5
# The pause after a load, in times of what the load took, and at most.
_REST_FACTOR: Final = 20.0
_MAX_REST_SECONDS: Final = 5.0

PageKey = tuple[str, str, str]  # the name and role of the person, and the address of the page


class ChangeWatch:
    """Wakes open pages when the store has changed, and when the server stops."""

    def __init__(
        self, count_changes: Callable[[], Awaitable[int]], is_draining: Callable[[], bool]
    ) -> None:
        self._count_changes = count_changes
        self._is_draining = is_draining
        self._pages: Counter[PageKey] = Counter()
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._draining = asyncio.Event()
        self._loading = asyncio.Lock()
        self._rests_until = 0.0
        self._loaded: dict[PageKey, tuple[int, LoadedPage]] = {}
        self._counts: dict[tuple[str, str], tuple[int, dict[str, str]]] = {}
        self.changes = -1
        self.loads = 0

    @contextmanager
    def open(self, key: PageKey) -> Iterator[None]:
        """Count an open page for the time of the block; without any, nobody looks."""
        self._pages[key] += 1
        if self._task is None:
            self._task = asyncio.create_task(self._look_again())
        try:
            yield
        finally:
            self._pages[key] -= 1
            if not self._pages[key]:
                del self._pages[key]
                self._loaded.pop(key, None)
            if not self._pages and self._task is not None:
                self._counts.clear()
                self._task.cancel()
                self._task = None

    async def look(self) -> None:
        """Ask whether the store has changed, and wake the pages then."""
        changes = await self._count_changes()
        if changes != self.changes:
            self.changes = changes
            self._wake()

    @property
    def is_draining(self) -> bool:
        """Whether the server stops, so that streams have to end."""
        return self._draining.is_set() or self._is_draining()

    async def wait(self, since: int, seconds: float) -> bool:
        """Wait for other `changes`, or the end of the server; return False after `seconds`."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while self.changes == since and not self.is_draining:
            try:
                await asyncio.wait_for(self._changed.wait(), max(0.0, until - loop.time()))
            except TimeoutError:
                return False
        return True

    async def pause(self, seconds: float) -> None:
        """Wait for some time, or until the server stops."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._draining.wait(), max(0.0, seconds))

    async def load(
        self, key: PageKey, load: Callable[[], Awaitable[LoadedPage]], *, is_aged: bool = False
    ) -> LoadedPage:
        """Return a page as of the last change, loaded by the first of those that show it.

        With `is_aged` it is loaded also if nothing has changed, once for all that ask at that time.
        """
        before = self._loaded.get(key)
        async with self._loading:
            latest = self._loaded.get(key)
            is_new_enough = latest is not before or not is_aged
            if latest is not None and latest[0] == self.changes and is_new_enough:
                return latest[1]
            async with self._rested():
                changes = self.changes
                page = await load()
                self.loads += 1
            if self._pages[key]:
                self._loaded[key] = changes, page
            return page

    async def count(
        self, key: PageKey, load: Callable[[], Awaitable[dict[str, str]]]
    ) -> dict[str, str]:
        """Return the numbers in the navigation of a person as of the last change, loaded once."""
        async with self._loading:
            latest = self._counts.get(key[:2])
            if latest is not None and latest[0] == self.changes:
                return latest[1]
            # A new page gets its numbers at once, not after the rest that its own load has caused.
            async with self._rested(waits=latest is not None):
                changes = self.changes
                counts = await load()
            self._counts[key[:2]] = changes, counts
            return counts

    @asynccontextmanager
    async def _rested(self, *, waits: bool = True) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        if waits:
            await self.pause(self._rests_until - loop.time())
        began = loop.time()
        try:
            yield
        finally:
            took = loop.time() - began
            self._rests_until = loop.time() + min(_REST_FACTOR * took, _MAX_REST_SECONDS)

    async def _look_again(self) -> None:
        while not self._is_draining():
            try:
                await self.look()
            except Error as problem:
                log.debug("looking for changes failed, trying again: %s", problem)
            await asyncio.sleep(_LOOK_SECONDS)
        self._draining.set()
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
