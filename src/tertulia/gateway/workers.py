"""Claim items from a queue in the database and run each one in a task of its own.

The pipeline has one worker for the inbox, one for the runs of schedules and one for deliveries
(`deliveries.py`). The queue itself hands out one item of a lane at a time and is fair between
lanes. A worker limits how many items are in progress on this node and renews their claims
meanwhile. If the node dies, the claims expire, and another node claims the items.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, Generic, Protocol, TypeVar

from tertulia.errors import Error, StaleWrite
from tertulia.records.queues.base import MAX_LIMIT, ClaimedEntry

log = logging.getLogger("tertulia.gateway")

WAIT_SECONDS = 1.0
RETRY_SECONDS = 0.5  # after a failure that mostly means that the database is not reachable


C = TypeVar("C", bound=ClaimedEntry)


class Queue(Protocol[C]):
    """A queue of the store: the inbox, the due runs of schedules, or the outbox."""

    async def wait(self, seconds: float) -> bool: ...

    async def claim(self, limit: int = ..., *, lease_seconds: float = ...) -> list[C]: ...

    async def renew(self, item: C, /, *, lease_seconds: float = ...) -> None: ...


class Worker(Generic[C]):
    """Claims items from one queue and calls `run` for each, at most `limit` at a time."""

    def __init__(
        self,
        name: str,
        queue: Queue[C],
        run: Callable[[C], Coroutine[Any, Any, None]],
        limit: int,
        *,
        lease: float,
    ) -> None:
        self._name = name
        self._queue = queue
        self._run = run
        self._limit = limit
        self._lease = lease
        # By task: an item whose claim expired may be claimed here again before its task has ended.
        self._in_progress: dict[asyncio.Task[None], C] = {}
        self._has_room = asyncio.Event()
        self._has_more = False

    async def claim_and_start(self) -> None:
        """Wait for a free slot and a due item, claim due items, and start a task for each.

        Return after a second at the latest if nothing is due. If the caller is cancelled, the
        started tasks continue, until `drain`.
        """
        self._has_room.clear()
        if not self._has_capacity():
            await self._wait_for_room()
            return
        async with self._retry_later():
            # A non-empty claim usually means more is due; claim again without waiting for a
            # notification.
            if self._has_more or await self._wait(WAIT_SECONDS):
                self._has_more = await self._claim_due() > 0

    @asynccontextmanager
    async def _retry_later(self) -> AsyncIterator[None]:
        """Log an error of the block and wait a moment, so that the caller can try again."""
        try:
            yield
        except Error as problem:
            log.warning("%s claim failed, retrying in %g s: %s", self._name, RETRY_SECONDS, problem)
            await asyncio.sleep(RETRY_SECONDS)

    async def renew_claims(self) -> None:
        """Renew the claims of the items in progress until cancelled, also while draining."""
        while True:
            await asyncio.sleep(self._lease / 3)
            for item in list(self._in_progress.values()):
                try:
                    await self._queue.renew(item, lease_seconds=self._lease)
                except StaleWrite:
                    # It is settled, or another node has claimed it; then settling it is refused.
                    continue
                except Error as problem:
                    log.warning(
                        "%s claim of %s could not be renewed, retrying in %g s: %s",
                        self._name, item.id, self._lease / 3, problem,
                    )  # fmt: skip

    async def drain(self, seconds: float) -> int:
        """Wait for the items in progress, cancel the rest, and return how many were cancelled."""
        if not self._in_progress:
            return 0
        _, unfinished = await asyncio.wait(list(self._in_progress), timeout=seconds)
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
        return len(unfinished)

    def _has_capacity(self) -> bool:
        return len(self._in_progress) < self._limit

    async def _wait_for_room(self) -> None:
        await self._has_room.wait()

    async def _wait(self, seconds: float) -> bool:
        return await self._queue.wait(seconds)

    async def _claim_due(self) -> int:
        """Claim as many due items as there is room for; return how many were started."""
        room = min(self._limit - len(self._in_progress), MAX_LIMIT)
        return await self._start_claimed(self._queue.claim(room, lease_seconds=self._lease))

    async def _start_claimed(self, claim: Awaitable[Sequence[C]]) -> int:
        """Await a claim, start its items, and return how many there were.

        If this is cancelled while the claim is running, the items are started all the same before
        the cancellation goes on, and draining then waits for them: an item that is claimed and not
        started would be delayed until its claim expires.
        """
        claiming = asyncio.ensure_future(claim)
        try:
            items = await asyncio.shield(claiming)
        except asyncio.CancelledError:
            await asyncio.wait([claiming])
            if claiming.exception() is None:
                self._start(claiming.result())
            raise
        self._start(items)
        return len(items)

    def _start(self, items: Sequence[C]) -> None:
        for item in items:
            task = asyncio.create_task(self._run(item))
            self._in_progress[task] = item
            task.add_done_callback(self._finish)

    def _finish(self, task: asyncio.Task[None]) -> None:
        del self._in_progress[task]
        self._has_room.set()
