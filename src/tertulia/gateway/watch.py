"""The watcher: ends what its policy ends, and has saved what is to be remembered of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from tertulia import aio
from tertulia.core.session import Session
from tertulia.errors import Error

log = logging.getLogger("tertulia.gateway")

Flush = Callable[[Session], Awaitable[None]]


class Watcher:
    """Looks for sessions that are over, page by page."""

    def __init__(self, store: aio.Store, *, every: float, flush: Flush | None = None) -> None:
        self._store = store
        self._every = every
        self._flush = flush

    async def run(self) -> None:
        while True:
            try:
                await self.look()
                await self.remember()
            except Error as problem:
                log.warning("sessions that are over could not be looked for: %s", problem)
            await asyncio.sleep(self._every)

    async def look(self) -> int:
        """End every session that its policy ends now; how many there were."""
        ended, cursor = 0, None
        while True:
            page = await self._store.sessions.expired(cursor=cursor)
            for session in page.items:
                ended += await self._store.sessions.expire(session.id) is not None
            cursor = page.next
            if cursor is None:
                return ended

    async def remember(self) -> int:
        """Save the memory of what has ended, also where a new message ended it; how many."""
        saved = 0
        while self._flush is not None and (due := await self._store.flushes.claim()):
            for session in due:
                try:
                    await self._flush(session)
                except Error as problem:
                    log.warning("session %s left no memory: %s", session.id, problem)
                else:
                    await self._store.flushes.done(session.id)
                    saved += 1
        return saved
