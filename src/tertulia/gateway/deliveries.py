"""Deliveries: from the outbox to the platforms, in order for each chat.

The outbox hands out one delivery of a chat at a time. The number of sends in progress is limited
for each platform, so that a platform that hangs does not delay the others.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial

from tertulia import aio
from tertulia.errors import Error, OutcomeUnknown, PlatformError, RateLimited, StaleWrite
from tertulia.gateway.workers import start_claimed
from tertulia.platforms.base import Adapter, Outgoing
from tertulia.records.queues.outbox import Delivery

log = logging.getLogger("tertulia.gateway")

_WAIT_SECONDS = 1.0
_RETRY_SECONDS = 0.5
_MAX_SENDS = 64  # in progress at once, for each platform
_LONGEST_PAUSE = 300.0


class DeliveryWorker:
    """Sends due deliveries and stores the outcome of each."""

    def __init__(self, store: aio.Store, adapters: Mapping[str, Adapter], tries: int) -> None:
        self._store = store
        self._adapters = adapters
        self._tries = tries
        self._idempotent = {name for name, adapter in adapters.items() if adapter.is_idempotent}
        self._in_progress: dict[int, tuple[Delivery, asyncio.Task[None]]] = {}
        self._sends: Counter[str] = Counter()  # in progress, by platform
        self._has_room = asyncio.Event()
        self._has_more = False

    async def claim_and_start(self) -> None:
        """Wait for room and for a delivery, claim what is due, and start to send it.

        Return after a second at the latest if nothing is due. Sends that were started go on when
        the caller is cancelled, until `drain`.
        """
        self._has_room.clear()
        platforms = {name for name in self._adapters if self._sends[name] < _MAX_SENDS}
        if not platforms:
            await self._has_room.wait()
            return
        try:
            # A non-empty claim usually means more is due; claim again without waiting for a
            # notification.
            if self._has_more or await self._store.outbox.wait(_WAIT_SECONDS, platforms=platforms):
                self._has_more = await self._claim_due() > 0
        except Error as problem:
            log.warning("outbox claim failed, retrying in %g s: %s", _RETRY_SECONDS, problem)
            await asyncio.sleep(_RETRY_SECONDS)

    async def renew_claims(self) -> None:
        """Renew the claims of deliveries that take long to send, until cancelled."""
        while True:
            await asyncio.sleep(self._lease / 3)
            for delivery, _ in list(self._in_progress.values()):
                try:
                    await self._store.outbox.renew(delivery, lease_seconds=self._lease)
                except StaleWrite:
                    continue  # it is settled by now; if by another node, `_settle` reports it
                except Error as problem:
                    log.warning(
                        "outbox claim of %s could not be renewed, retrying in %g s: %s",
                        delivery.delivery, self._lease / 3, problem,
                    )  # fmt: skip

    async def drain(self, seconds: float) -> None:
        """Send what is due now and nothing that is due later; cancel sends after `seconds`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while await self._claim_due() or self._in_progress:
            tasks = [task for _, task in self._in_progress.values()]
            if not tasks:
                continue  # everything that was claimed is sent already
            _, unfinished = await asyncio.wait(tasks, timeout=max(0.0, deadline - loop.time()))
            if unfinished and loop.time() >= deadline:
                for task in unfinished:
                    task.cancel()
                await asyncio.gather(*unfinished, return_exceptions=True)
                return

    async def _claim_due(self) -> int:
        """Claim what is due for each platform that has room; return how many were started."""
        started = 0
        for platform in self._adapters:
            room = _MAX_SENDS - self._sends[platform]
            if room > 0:
                claim = self._store.outbox.claim(
                    room,
                    lease_seconds=self._lease,
                    platforms={platform},
                    idempotent=self._idempotent,
                )
                started += await start_claimed(claim, self._start)
        return started

    def _start(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            task = asyncio.create_task(self._send(delivery))
            self._in_progress[delivery.id] = delivery, task
            self._sends[delivery.platform] += 1
            task.add_done_callback(partial(self._finish, delivery))

    def _finish(self, delivery: Delivery, task: asyncio.Task[None]) -> None:
        del self._in_progress[delivery.id]
        self._sends[delivery.platform] -= 1
        self._has_room.set()

    async def _send(self, delivery: Delivery) -> None:
        problem: PlatformError | None = None
        try:
            await self._adapters[delivery.platform].send(_outgoing(delivery))
        except PlatformError as refusal:
            problem = refusal
        except asyncio.CancelledError:
            stopped = OutcomeUnknown("The gateway stopped while this was being sent.")
            await asyncio.shield(self._settle(delivery, stopped))
            raise
        except Exception as bug:
            # The adapter may have sent it before it failed, so it is not sent again.
            log.exception("the adapter of %s has a bug", delivery.platform)
            problem = OutcomeUnknown(f"The adapter failed: {type(bug).__name__}: {bug}")
        await self._settle(delivery, problem)

    async def _settle(self, delivery: Delivery, problem: PlatformError | None) -> None:
        """Store the outcome of a send; retry while the database is not available."""
        key = delivery.delivery
        if problem is not None:
            log.warning("delivery %s to %s failed: %s", key, delivery.platform, problem)
        while True:
            try:
                await self._store_outcome(delivery, problem)
            except StaleWrite as conflict:
                log.warning("delivery %s was settled by another node: %s", key, conflict)
            except Error as failure:
                if failure.retryable:
                    await asyncio.sleep(_RETRY_SECONDS)
                    continue
                log.error("delivery %s could not be settled: %s", key, failure)  # noqa: TRY400
            return

    async def _store_outcome(self, delivery: Delivery, problem: PlatformError | None) -> None:
        outbox = self._store.outbox
        if problem is None:
            await outbox.done(delivery)
        elif isinstance(problem, OutcomeUnknown):
            await outbox.failed(delivery, problem.message, outcome="unknown")
        elif problem.retryable and delivery.attempts < self._tries:
            await outbox.failed(delivery, problem.message, retry_after=_pause(delivery, problem))
        else:
            await outbox.failed(delivery, problem.message, outcome="dead")

    @property
    def _lease(self) -> float:
        return self._store.settings.lease_seconds


def _outgoing(delivery: Delivery) -> Outgoing:
    return Outgoing(
        delivery=delivery.delivery,
        account=delivery.account,
        chat_id=delivery.chat_id,
        thread_id=delivery.thread_id,
        text=delivery.body["text"],
    )


def _pause(delivery: Delivery, problem: PlatformError) -> float:
    """Return the seconds to wait before the next try.

    That is the time the platform asks for, or else a time that doubles with every try, with a
    random part, so that not all deliveries are tried at the same moment.
    """
    if isinstance(problem, RateLimited):
        retry_after: float = getattr(problem, "retry_after", 1.0)
        return retry_after
    return min(_LONGEST_PAUSE, 2.0**delivery.attempts) * random.uniform(0.5, 1.0)  # noqa: S311
