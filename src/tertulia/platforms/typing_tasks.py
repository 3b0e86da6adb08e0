"""Tasks that show "typing" in the background, at most one for each turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class TypingTasks:
    """The tasks by which one adapter shows "typing"; one that has ended is forgotten."""

    def __init__(self) -> None:
        self._by_turn: dict[str, asyncio.Task[None]] = {}

    def start(self, turn: str, show: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `show` in the background; do nothing while a task of the turn is running."""
        if turn in self._by_turn:
            return
        task = asyncio.create_task(show())
        self._by_turn[turn] = task
        task.add_done_callback(lambda ended: self._forget(turn, ended))

    def stop(self, turn: str) -> None:
        """Cancel the task of a turn, if there is one."""
        task = self._by_turn.pop(turn, None)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """Cancel all tasks and wait for their end."""
        tasks = list(self._by_turn.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _forget(self, turn: str, ended: asyncio.Task[None]) -> None:
        # A later task of the same turn may have taken its place.
        if self._by_turn.get(turn) is ended:
            del self._by_turn[turn]
