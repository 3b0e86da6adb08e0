"""The watch over background programs, as a part of a gateway."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from tertulia.errors import Error

if TYPE_CHECKING:
    from tertulia.processes.registry import ProcessRegistry

log = logging.getLogger("tertulia.processes")


class ProcessPoller:
    """Finds the programs again after a start, then looks at them again and again."""

    def __init__(self, registry: ProcessRegistry | None, *, every: float = 1.0) -> None:
        self._registry = registry
        self._every = every

    async def run(self) -> None:
        if self._registry is None:
            await asyncio.Event().wait()
            return
        look = self._registry.recover
        while True:
            try:
                await asyncio.to_thread(look)
                look = self._registry.look  # type: ignore[assignment]
            except Error as problem:
                log.warning("background programs could not be looked at: %s", problem)
            await asyncio.sleep(self._every)
