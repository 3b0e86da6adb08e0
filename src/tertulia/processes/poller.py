"""The task of a gateway that checks background programs at an interval."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from tertulia.errors import Error

if TYPE_CHECKING:
    from tertulia.processes.registry import ProcessRegistry

log = logging.getLogger("tertulia.processes")


class ProcessPoller:
    """Recovers the programs once after a start, then checks all of them every `every` seconds."""

    def __init__(self, registry: ProcessRegistry | None, *, every: float = 1.0) -> None:
        self._registry = registry
        self._every = every

    async def run(self) -> None:
        """Run until cancelled; without a registry, only wait."""
        if self._registry is None:
            await asyncio.Event().wait()
            return
        check = self._registry.recover
        while True:
            try:
                await asyncio.to_thread(check)
                check = self._registry.check_all  # type: ignore[assignment]
            except Error as problem:
                log.warning("process check failed, retrying in %g s: %s", self._every, problem)
            await asyncio.sleep(self._every)
