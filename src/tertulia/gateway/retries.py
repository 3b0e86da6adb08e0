"""Run the work of claimed items; put an item whose work failed back, or give it up.

The delays between two attempts of everything the gateway tries again are here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from tertulia.core.backoff import JITTER, Backoff
from tertulia.errors import Conflict, Error, SessionBusy
from tertulia.records.queues.base import ClaimedEntry

log = logging.getLogger("tertulia.gateway")

STOPPED = Error("The gateway stopped before this was finished.")
_BUG = Error("The gateway has a bug.", hint="Its log says where.")

MESSAGE_BACKOFF = Backoff(first=2, longest=60)
SCHEDULE_RUN_BACKOFF = Backoff(first=2, longest=300)
SEND_BACKOFF = Backoff(first=2, longest=300)
LISTEN_BACKOFF = Backoff(first=1, longest=30)
ACCOUNT_BACKOFF = Backoff(first=5, longest=300)


C = TypeVar("C", bound=ClaimedEntry)
C_contra = TypeVar("C_contra", bound=ClaimedEntry, contravariant=True)


class FailureQueue(Protocol[C_contra]):
    """A queue that takes items back: the inbox, or the due runs of schedules."""

    async def failed(
        self,
        item: C_contra,
        problem: str,
        /,
        *,
        retry_after: float | None = ...,
        for_good: bool = ...,
    ) -> None: ...


class Retries(Generic[C]):
    """Decides what becomes of an item whose work failed, and stores it.

    `gives_up` decides whether there is no further attempt; then `report` tells the person. An item
    whose session is busy is tried again after `busy_seconds`.
    """

    def __init__(
        self,
        name: str,
        queue: FailureQueue[C],
        *,
        gives_up: Callable[[C, Error], bool],
        report: Callable[[C, Error], Awaitable[None]],
        backoff: Backoff,
        busy_seconds: float,
    ) -> None:
        self._name = name
        self._queue = queue
        self._gives_up = gives_up
        self._report = report
        self._backoff = backoff
        self._busy_seconds = busy_seconds

    async def run(self, item: C, work: Callable[[C], Awaitable[None]]) -> None:
        """Await the work of an item, and settle the item if that fails."""
        try:
            await work(item)
        except asyncio.CancelledError:
            # The gateway stops: give the claim up now, so that the next node need not wait.
            await asyncio.shield(self._settle(item, STOPPED, 0))
            raise
        except SessionBusy as problem:
            await self._settle(item, problem, self._busy_seconds)
        except Conflict as problem:
            log.info(
                "%s %s was continued by another node: %s", self._name, item.id, problem.message
            )
        except Error as problem:
            log.warning("%s %s failed: %s", self._name, item.id, problem)
            await self._fail(item, problem)
        except Exception:
            log.exception("%s %s failed", self._name, item.id)
            await self._fail(item, _BUG)

    async def give_up(self, item: C, problem: Error) -> None:
        """Report that there is no further attempt, and settle the item for good."""
        await self._settle(item, problem, 0, for_good=True)

    async def _fail(self, item: C, problem: Error) -> None:
        if self._gives_up(item, problem):
            await self.give_up(item, problem)
        else:
            chance = JITTER.random()
            await self._settle(item, problem, self._backoff.delay(item.attempts, chance))

    async def _report_failure(self, item: C, problem: Error) -> None:
        """Report that there is no further attempt, unless there is nobody to report it to."""
        try:
            await self._report(item, problem)
        except Error as failure:
            if failure.retryable:
                raise
            log.warning("%s %s failed, and nobody is told: %s", self._name, item.id, failure)

    async def _settle(
        self, item: C, problem: Error, seconds: float, *, for_good: bool = False
    ) -> None:
        """Put an item back to be tried again after `seconds`, or settle it for good."""
        try:
            if for_good:
                await self._report_failure(item, problem)
            await self._queue.failed(item, problem.message, retry_after=seconds, for_good=for_good)
        except Error as failure:
            # The claim expires, and then a node tries again.
            log.warning(
                "%s %s could not be put back, waiting for its claim to expire: %s",
                self._name, item.id, failure,
            )  # fmt: skip
