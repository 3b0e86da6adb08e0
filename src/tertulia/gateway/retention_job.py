"""The retention of the store, as a task of the gateway."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from tertulia import aio
from tertulia.errors import Error
from tertulia.gateway.result_files import ResultFiles
from tertulia.records.retention_steps import RemovedRows

log = logging.getLogger("tertulia.gateway")

_LIMIT: Final = 50  # rows of each kind in one step
# Between two steps, so that turns go first.
_PAUSE_SECONDS: Final = 0.2


class RetentionJob:
    """Removes what is no longer kept, every `every` seconds, in small steps with pauses."""

    def __init__(
        self,
        store: aio.Store,
        *,
        files: ResultFiles | None = None,
        every: float = 3600.0,
        pause: float = _PAUSE_SECONDS,
    ) -> None:
        self._store = store
        self._files = files
        self._every = every
        self._pause = pause

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            try:
                await self.remove()
                await self.clean_files()
            except (Error, OSError) as problem:
                log.warning("retention failed, retrying in %g s: %s", self._every, problem)
            await asyncio.sleep(self._every)

    async def clean_files(self) -> int:
        """Delete the files of results whose sessions were deleted; return how many."""
        if self._files is None:
            return 0
        return await asyncio.to_thread(self._files.clean, self._store.sync)

    async def remove(self) -> RemovedRows:
        """Remove everything that is no longer kept; return how many."""
        removed = step = await self._store.retention.remove_some(_LIMIT)
        while step.total:
            await asyncio.sleep(self._pause)
            step = await self._store.retention.remove_some(_LIMIT)
            removed += step
        if removed.total:
            log.info("retention removed %d rows and sessions", removed.total)
        return removed
