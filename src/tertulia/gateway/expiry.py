"""Session expiry: end the sessions that their policy ends, and have their memory saved."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from tertulia import aio
from tertulia.core.session import Session
from tertulia.errors import Error

log = logging.getLogger("tertulia.gateway")

APPROVAL_SECONDS = 15.0  # between two looks for approvals that nobody answered in time
_MAX_FLUSHES = 8  # in progress at once

Flush = Callable[[Session], Awaitable[None]]


class ExpiryWatcher:
    """Looks for expired sessions every few seconds, page by page."""

    def __init__(self, store: aio.Store, *, every: float, flush: Flush | None = None) -> None:
        self._store = store
        self._every = every
        self._flush = flush

    async def run(self) -> None:
        """Expire sessions and save memories until cancelled."""
        while True:
            try:
                await self.expire_sessions()
                await self.flush_memories()
                await self._store.media.clean()
            except Error as problem:
                log.warning("session expiry failed, retrying in %g s: %s", self._every, problem)
            await asyncio.sleep(self._every)

    async def run_approvals(self) -> None:
        """Decline calls whose approval has expired, until cancelled."""
        while True:
            try:
                await self._store.approvals.expire()
            except Error as problem:
                log.warning(
                    "expiry of approvals failed, retrying in %g s: %s", APPROVAL_SECONDS, problem
                )
            await asyncio.sleep(APPROVAL_SECONDS)

    async def expire_sessions(self) -> int:
        """End every session that its policy ends now; return how many were ended."""
        ended, cursor = 0, None
        while True:
            page = await self._store.sessions.expired(cursor=cursor)
            for session in page.items:
                ended += await self._store.sessions.expire(session.id) is not None
            cursor = page.next
            if cursor is None:
                return ended

    async def flush_memories(self) -> int:
        """Save the memory of ended sessions, by whatever they ended; return how many were saved."""
        saved = 0
        while self._flush is not None and (
            sessions := await self._store.memory_flushes.claim(_MAX_FLUSHES)
        ):
            saved += sum(await asyncio.gather(*(self._save(session) for session in sessions)))
        return saved

    async def _save(self, session: Session) -> bool:
        assert self._flush is not None
        try:
            await self._flush(session)
            await self._store.memory_flushes.done(session.id)
        except Error as problem:
            log.warning("memory flush of session %s failed: %s", session.id, problem)
            return False
        except Exception:
            # The flush is code of others. A flush that failed is tried three times at most.
            log.exception("memory flush of session %s failed", session.id)
            return False
        return True
