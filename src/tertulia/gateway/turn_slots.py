"""Slots for turns: how many may run at once on this node, and how many of them for one person.

Turns of the inbox and turns of callers that wait (HTTP, schedules) share the slots. The worker of
the inbox reserves slots before it claims, so that it never claims a message that could not run. If
no slot is free, callers and the worker get the next ones in the order in which they began to wait.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import msgspec

from tertulia.errors import LimitExceeded

_RETRY_SECONDS = 5.0


class _Waiter(msgspec.Struct, eq=False):
    """Somebody who waits for a slot; `granted` is resolved when there is one.

    `person` is None for the worker of the inbox, which does not know yet whom it serves.
    """

    person: str | None
    granted: asyncio.Future[None]


class TurnSlots:
    """The slots of one node."""

    def __init__(self, limit: int, per_person: int) -> None:
        self._limit = limit
        self.per_person = min(limit, per_person)
        self._running: Counter[str] = Counter()
        self._in_use = 0  # running, and reserved for a claim
        self._waiters: deque[_Waiter] = deque()

    @property
    def running(self) -> Mapping[str, int]:
        """How many turns run, by person."""
        return self._running

    @property
    def free(self) -> int:
        """How many slots nobody uses or waits for."""
        return max(0, self._limit - self._in_use - len(self._waiters))

    # -- the worker of the inbox

    def reserve(self, limit: int) -> int:
        """Reserve up to `limit` free slots for a claim, and return how many."""
        count = min(limit, self.free)
        self._in_use += count
        return count

    async def reserve_next(self) -> None:
        """Wait for a slot and reserve it."""
        await self._wait(None, None)

    def start_reserved(self, person: str) -> None:
        """Use a reserved slot for a turn of this person; `release` ends it."""
        self._running[person] += 1

    def release_reserved(self, count: int) -> None:
        """Give back slots for which nothing was claimed."""
        self._in_use -= count
        self._grant()

    def release(self, person: str) -> None:
        """Free the slot of a turn that has ended."""
        self._running[person] -= 1
        if not self._running[person]:
            del self._running[person]
        self.release_reserved(1)

    # -- callers that wait for the answer

    @asynccontextmanager
    async def slot(
        self, person: str, *, seconds: float, is_patient: bool = False
    ) -> AsyncIterator[None]:
        """Hold a slot for the time of the block.

        Raises `LimitExceeded` if the person has as many turns already, if too many callers wait,
        or if no slot is free within `seconds`. `is_patient`: wait without these limits.
        """
        if not is_patient:
            self._check(person)
        await self._wait(person, None if is_patient else seconds)
        try:
            yield
        finally:
            self.release(person)

    def _check(self, person: str) -> None:
        waiting = sum(waiter.person == person for waiter in self._waiters)
        if self._running[person] + waiting >= self.per_person:
            raise _exceeded(f"You have {self.per_person} turns running.")
        if sum(waiter.person is not None for waiter in self._waiters) >= self._limit:
            raise self._full()

    async def _wait(self, person: str | None, seconds: float | None) -> None:
        waiter = _Waiter(person, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        self._grant()
        try:
            async with asyncio.timeout(seconds):
                await waiter.granted
        except BaseException as problem:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            if waiter.granted.done() and not waiter.granted.cancelled():
                self._give_back(person)
            if isinstance(problem, TimeoutError):
                raise self._full() from None
            raise

    def _give_back(self, person: str | None) -> None:
        """Free a slot that was granted at the moment in which its waiter gave up."""
        if person is None:
            self.release_reserved(1)
        else:
            self.release(person)

    def _grant(self) -> None:
        """Give free slots to those who wait, in order."""
        while self._in_use < self._limit and self._waiters:
            waiter = self._waiters.popleft()
            if waiter.granted.done():
                continue  # it was cancelled a moment ago
            self._in_use += 1
            if waiter.person is not None:
                self._running[waiter.person] += 1
            waiter.granted.set_result(None)

    def _full(self) -> LimitExceeded:
        return _exceeded(f"This node runs {self._limit} turns already.")


def _exceeded(message: str) -> LimitExceeded:
    hint = "Wait for an answer, then try again."
    return LimitExceeded(message, hint=hint, retry_after=_RETRY_SECONDS)
