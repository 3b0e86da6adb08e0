"""Waiting for something, as long as nobody says stop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from tertulia.errors import AgentStopped

T = TypeVar("T")


class StopWatcher:
    """Keeps an eye on `stop` during one run."""

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop
        self._stopping: asyncio.Task[Any] | None = None  # not before something is waited for

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._stopping is not None:
            self._stopping.cancel()
            await asyncio.gather(self._stopping, return_exceptions=True)

    def check(self) -> None:
        """Raise `AgentStopped` if the run was told to stop."""
        if self._stop.is_set():
            raise AgentStopped("The agent was stopped before it had answered.")

    async def wait(self, work: Coroutine[Any, Any, T], seconds: float | None = None) -> T:
        """The result of some work; `AgentStopped` on stop, `TimeoutError` when it takes too long.

        Work that is not waited for any longer is cancelled, and has ended when this returns.
        """
        task = asyncio.ensure_future(work)
        try:
            await self.settle(task, seconds)
            self.check()
            if not task.done():
                raise TimeoutError
            return task.result()
        finally:
            if not task.done():
                task.cancel()
            # What it raised is told above, or it was not waited for.
            await asyncio.gather(task, return_exceptions=True)

    async def settle(self, task: asyncio.Future[Any], seconds: float | None = None) -> None:
        """Come back when a task is done, at stop, or after some seconds; whichever is first."""
        if self._stopping is None:
            self._stopping = asyncio.ensure_future(self._stop.wait())
        both: set[asyncio.Future[Any]] = {task, self._stopping}
        await asyncio.wait(both, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
