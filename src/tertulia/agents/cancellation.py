"""Cancellation: wait for a coroutine until it is done or the run is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from tertulia.errors import AgentStopped

T = TypeVar("T")


class StopWatcher:
    """Waits on behalf of one run, and ends each wait as soon as `stop` is set."""

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop
        # The task that waits for `stop`; created with the first wait.
        self._stop_task: asyncio.Task[Any] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._stop_task is not None:
            self._stop_task.cancel()
            await asyncio.gather(self._stop_task, return_exceptions=True)

    def check(self) -> None:
        """Raise `AgentStopped` if `stop` is set."""
        if self._stop.is_set():
            raise AgentStopped("The agent was stopped before it had answered.")

    async def wait(self, work: Coroutine[Any, Any, T], seconds: float | None = None) -> T:
        """Return the result of `work`.

        Raise `AgentStopped` if `stop` is set and `TimeoutError` after `seconds`. In both cases
        `work` is cancelled, and it has ended when this method returns.
        """
        task = asyncio.ensure_future(work)
        try:
            await self.wait_done(task, seconds)
            self.check()
            if not task.done():
                raise TimeoutError
            return task.result()
        finally:
            if not task.done():
                task.cancel()
            # Its exception was raised above, or the task was abandoned and nobody needs it.
            await asyncio.gather(task, return_exceptions=True)

    async def wait_done(self, task: asyncio.Future[Any], seconds: float | None = None) -> None:
        """Return when the task is done, `stop` is set or `seconds` have passed."""
        if self._stop_task is None:
            self._stop_task = asyncio.ensure_future(self._stop.wait())
        both: set[asyncio.Future[Any]] = {task, self._stop_task}
        await asyncio.wait(both, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
