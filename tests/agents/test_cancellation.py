"""`StopWatcher`: results, timeouts, stop, and no task left behind."""

from __future__ import annotations

import asyncio

import pytest

from tertulia import AgentStopped
from tertulia.agents.cancellation import StopWatcher


class Work:
    """A coroutine that waits for ever and records its cancellation."""

    def __init__(self) -> None:
        self.has_begun = asyncio.Event()
        self.was_cancelled = False

    async def __call__(self) -> None:
        self.has_begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.was_cancelled = True


def test_result_of_the_work_is_returned() -> None:
    async def add() -> int:
        return 6 + 1

    async def run() -> int:
        async with StopWatcher(asyncio.Event()) as watcher:
            return await watcher.wait(add(), 60.0)

    assert asyncio.run(run()) == 7


def test_exception_of_the_work_is_raised() -> None:
    async def fail() -> None:
        raise KeyError("lost")

    async def run() -> None:
        async with StopWatcher(asyncio.Event()) as watcher:
            await watcher.wait(fail())

    with pytest.raises(KeyError, match="lost"):
        asyncio.run(run())


def test_timeout_cancels_the_work() -> None:
    async def run() -> None:
        work = Work()
        async with StopWatcher(asyncio.Event()) as watcher:
            with pytest.raises(TimeoutError):
                await watcher.wait(work(), 0.01)
        assert work.was_cancelled

    asyncio.run(run())


def test_stop_cancels_the_work() -> None:
    async def run() -> None:
        work, stop = Work(), asyncio.Event()
        async with StopWatcher(stop) as watcher:
            watcher.check()
            waiting = asyncio.ensure_future(watcher.wait(work()))
            await work.has_begun.wait()
            stop.set()
            with pytest.raises(AgentStopped):
                await waiting
            with pytest.raises(AgentStopped):
                watcher.check()
        assert work.was_cancelled
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())
