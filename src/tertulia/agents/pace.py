"""Pace of a stream: other tasks get a turn although a stream always has something ready."""

from __future__ import annotations

import asyncio
from typing import Final

# Events that are handled at once. One takes some ten microseconds, so that a burst of them keeps
# the event loop for less than a millisecond.
BURST: Final = 32


class Pace:
    """Lets the event loop run other tasks after every `BURST` events.

    A chunk of a pipe or socket may contain thousands of events, and reading the next chunk does not
    wait while the sender is faster than we are.
    """

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    async def keep(self) -> None:
        """Count an event, and let others run after a burst."""
        self._count += 1
        if self._count % BURST == 0:
            await asyncio.sleep(0)
