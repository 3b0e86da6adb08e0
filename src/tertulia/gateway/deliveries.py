"""Deliveries: from the outbox to the platforms, in order for each chat.

The outbox gives out one delivery of a chat at a time. Each platform has room for so many at once,
so that one which hangs keeps no other waiting.
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
_REST_SECONDS = 0.5
_AT_ONCE = 64
_LONGEST_PAUSE = 300.0


class DeliveryWorker:
    """Sends what is due and writes down what became of it."""

    def __init__(self, store: aio.Store, adapters: Mapping[str, Adapter], tries: int) -> None:
        self._store = store
        self._adapters = adapters
        self._tries = tries
        self._idempotent = {name for name, adapter in adapters.items() if adapter.is_idempotent}
        self._under_way: dict[int, tuple[Delivery, asyncio.Task[None]]] = {}
        self._load: Counter[str] = Counter()
        self._freed = asyncio.Event()
        self._has_more = False

    async def run(self) -> None:
        """Send until cancelled; what is being sent then goes on until `drain`."""
        while True:
            self._freed.clear()
            roomy = {name for name in self._adapters if self._load[name] < _AT_ONCE}
            if not roomy:
                await self._freed.wait()
                continue
            try:
                # Where there was something, there is often more: nobody has to say so.
                if self._has_more or await self._store.outbox.wait(_WAIT_SECONDS, platforms=roomy):
                    self._has_more = bool(await self.begin())
            except Error as problem:
                log.warning("nothing can be taken from the outbox now: %s", problem)
                await asyncio.sleep(_REST_SECONDS)

    async def begin(self) -> int:
        """Begin to send what is due now, as far as there is room; how many there were."""
        start_claimed = 0
        for name in self._adapters:
            room = _AT_ONCE - self._load[name]
            if room > 0:
                start_claimed += await self._begin_some(name, room)
        return start_claimed

    async def keep(self) -> None:
        """Renew the claims of what takes long to send, until cancelled."""
        while True:
            await asyncio.sleep(self._lease / 3)
            for parcel, _ in list(self._under_way.values()):
                try:
                    await self._store.outbox.renew(parcel, lease_seconds=self._lease)
                except StaleWrite:
                    continue  # it is settled meanwhile; who still sends it will hear of it
                except Error as problem:
                    log.warning("a claim could not be renewed: %s", problem)

    async def drain(self, seconds: float) -> None:
        """Send what is due before the end, and nothing that would have to wait."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while await self.begin() or self._under_way:
            tasks = [task for _, task in self._under_way.values()]
            if not tasks:
                continue  # what was begun is sent already
            _, left = await asyncio.wait(tasks, timeout=max(0.0, deadline - loop.time()))
            if left and loop.time() >= deadline:
                for task in left:
                    task.cancel()
                await asyncio.gather(*left, return_exceptions=True)
                return

    async def _begin_some(self, platform: str, room: int) -> int:
        claiming = self._store.outbox.claim(
            room, lease_seconds=self._lease, platforms={platform}, idempotent=self._idempotent
        )
        return await start_claimed(claiming, self._begin)

    def _begin(self, parcels: Sequence[Delivery]) -> None:
        for parcel in parcels:
            task = asyncio.create_task(self._send(parcel))
            self._under_way[parcel.id] = parcel, task
            self._load[parcel.platform] += 1
            task.add_done_callback(partial(self._end, parcel))

    def _end(self, parcel: Delivery, task: asyncio.Task[None]) -> None:
        del self._under_way[parcel.id]
        self._load[parcel.platform] -= 1
        self._freed.set()

    async def _send(self, parcel: Delivery) -> None:
        problem: PlatformError | None = None
        try:
            await self._adapters[parcel.platform].send(_outgoing(parcel))
        except PlatformError as refusal:
            problem = refusal
        except asyncio.CancelledError:
            cut_off = OutcomeUnknown("The gateway stopped while this was being sent.")
            await asyncio.shield(self._settle(parcel, cut_off))
            raise
        except Exception as bug:
            # It may have been sent before the adapter stumbled, so it is not sent again.
            log.exception("the adapter of %s has a bug", parcel.platform)
            problem = OutcomeUnknown(f"The adapter failed: {type(bug).__name__}: {bug}")
        await self._settle(parcel, problem)

    async def _settle(self, parcel: Delivery, problem: PlatformError | None) -> None:
        """Write down what became of it, as soon as the database is there."""
        if problem is not None:
            log.warning("delivery %s to %s failed: %s", parcel.delivery, parcel.platform, problem)
        while True:
            try:
                await self._write_down(parcel, problem)
            except StaleWrite as late:
                log.warning("delivery %s was settled by another node: %s", parcel.delivery, late)
            except Error as away:
                if away.retryable:
                    await asyncio.sleep(_REST_SECONDS)
                    continue
                log.error("delivery %s cannot be settled: %s", parcel.delivery, away)  # noqa: TRY400
            return

    async def _write_down(self, parcel: Delivery, problem: PlatformError | None) -> None:
        outbox = self._store.outbox
        if problem is None:
            await outbox.done(parcel)
        elif isinstance(problem, OutcomeUnknown):
            await outbox.failed(parcel, problem.message, outcome="unknown")
        elif problem.retryable and parcel.attempts < self._tries:
            await outbox.failed(parcel, problem.message, retry_after=_pause(parcel, problem))
        else:
            await outbox.failed(parcel, problem.message, outcome="dead")

    @property
    def _lease(self) -> float:
        return self._store.settings.lease_seconds


def _outgoing(parcel: Delivery) -> Outgoing:
    return Outgoing(
        delivery=parcel.delivery,
        account=parcel.account,
        chat_id=parcel.chat_id,
        thread_id=parcel.thread_id,
        text=parcel.body["text"],
    )


def _pause(parcel: Delivery, problem: PlatformError) -> float:
    """What the platform asks for; else longer after every try, and never all at the same moment."""
    if isinstance(problem, RateLimited):
        asked: float = getattr(problem, "retry_after", 1.0)
        return asked
    return min(_LONGEST_PAUSE, 2.0**parcel.attempts) * random.uniform(0.5, 1.0)  # noqa: S311
