"""Lanes: one turn at a time for each conversation, fair between conversations.

The queue is the inbox, in the database: this only takes from it as many as may be under way, keeps
its claims while they are worked on, and gives none back that another node could not take over. The
runs of schedules are taken the same way, from the schedules.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from tertulia.errors import Error, StaleWrite
from tertulia.records.queues.base import LIMIT

log = logging.getLogger("tertulia.gateway")

_WAIT_SECONDS = 1.0
_REST_SECONDS = 0.5  # after the database was not there


class ClaimedItem(Protocol):
    """Something that was taken from a box."""

    @property
    def id(self) -> int: ...


C = TypeVar("C", bound=ClaimedItem)


class Queue(Protocol[C]):
    """What there is to take from."""

    async def wait(self, seconds: float) -> bool: ...

    async def claim(self, limit: int = ..., *, lease_seconds: float = ...) -> list[C]: ...

    async def renew(self, one: C, /, *, lease_seconds: float = ...) -> None: ...


async def start_claimed(
    claims: Awaitable[Sequence[C]], begin: Callable[[Sequence[C]], None]
) -> int:
    """Begin what is claimed; how many. Who is cancelled meanwhile begins them all the same, and
    then drains: what is claimed and not begun would wait for its claim to run out."""
    claiming = asyncio.ensure_future(claims)
    try:
        found = await asyncio.shield(claiming)
    except asyncio.CancelledError:
        await asyncio.wait([claiming])
        if claiming.exception() is None:
            begin(claiming.result())
        raise
    begin(found)
    return len(found)


class Worker(Generic[C]):
    """Takes messages from the inbox, or what else a box holds, and has them answered."""

    def __init__(
        self,
        box: Queue[C],
        answer: Callable[[C], Coroutine[Any, Any, None]],
        width: int,
        *,
        lease: float,
    ) -> None:
        self._box = box
        self._answer = answer
        self._width = width
        self._lease = lease
        self._under_way: dict[int, tuple[C, asyncio.Task[None]]] = {}
        self._freed = asyncio.Event()
        self._has_more = False

    async def run(self) -> None:
        """Answer until cancelled; what is under way then goes on until `drain`."""
        while True:
            await self._take()

    async def drain(self, seconds: float) -> int:
        """Wait for what is under way, then cut it off; how many were cut off."""
        tasks = [task for _, task in self._under_way.values()]
        if not tasks:
            return 0
        _, left = await asyncio.wait(tasks, timeout=seconds)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        return len(left)

    async def keep(self) -> None:
        """Renew the claims of what is being answered, until cancelled: while it drains too."""
        while True:
            await asyncio.sleep(self._lease / 3)
            for one, _ in list(self._under_way.values()):
                try:
                    await self._box.renew(one, lease_seconds=self._lease)
                except StaleWrite:
                    continue  # it is settled, or another node has it; the turn itself will tell
                except Error as problem:
                    log.warning("a claim could not be renewed: %s", problem)

    async def _take(self) -> None:
        free = self._width - len(self._under_way)
        if free <= 0:
            self._freed.clear()
            await self._freed.wait()
            return
        try:
            # Where there was something, there is often more: nobody has to say so.
            if self._has_more or await self._box.wait(_WAIT_SECONDS):
                self._has_more = await self._begin_some(free)
        except Error as problem:
            log.warning("nothing can be taken now: %s", problem)
            await asyncio.sleep(_REST_SECONDS)

    async def _begin_some(self, free: int) -> bool:
        claiming = self._box.claim(min(free, LIMIT), lease_seconds=self._lease)
        return await start_claimed(claiming, self._begin) > 0

    def _begin(self, claimed: Sequence[C]) -> None:
        for one in claimed:
            task = asyncio.create_task(self._answer(one))
            self._under_way[one.id] = one, task
            task.add_done_callback(partial(self._end, one))

    def _end(self, one: C, task: asyncio.Task[None]) -> None:
        self._under_way.pop(one.id, None)
        self._freed.set()
