"""The watcher: ends what its policy ends, and has saved what is to be remembered of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from tertulia import aio
from tertulia.core.session import Session
from tertulia.errors import Error

log = logging.getLogger("tertulia.gateway")

_AT_ONCE = 8

Flush = Callable[[Session], Awaitable[None]]


class ExpiryWatcher:
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
        while self._flush is not None and (due := await self._store.memory_flushes.claim(_AT_ONCE)):
            saved += sum(await asyncio.gather(*(self._save(session) for session in due)))
        return saved

    async def _save(self, session: Session) -> bool:
        assert self._flush is not None
        try:
            await self._flush(session)
            await self._store.memory_flushes.done(session.id)
        except Error as problem:
            log.warning("session %s left no memory: %s", session.id, problem)
            return False
        except Exception:
            # It is foreign code; what it did not save is tried again, three times at most.
            log.exception("session %s left no memory", session.id)
            return False
        return True
