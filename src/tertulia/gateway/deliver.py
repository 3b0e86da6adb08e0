"""Deliveries: from the outbox to the platforms, in order for each chat."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping

from tertulia import aio
from tertulia.errors import Error, OutcomeUnknown, PlatformError, RateLimited, StaleWrite
from tertulia.platforms.base import Adapter, Outgoing
from tertulia.records.outbox import Parcel

log = logging.getLogger("tertulia.gateway")

_WAIT_SECONDS = 1.0
_REST_SECONDS = 0.5
_LEASE_SECONDS = 60.0
_AT_ONCE = 32
_LONGEST_PAUSE = 300.0


class Deliveries:
    """Sends what is due and writes down what became of it."""

    def __init__(self, store: aio.Store, adapters: Mapping[str, Adapter], tries: int) -> None:
        self._store = store
        self._adapters = adapters
        self._tries = tries
        self._idempotent = {name for name, adapter in adapters.items() if adapter.is_idempotent}
        self._under_way: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            try:
                if await self._store.outbox.wait(_WAIT_SECONDS, platforms=set(self._adapters)):
                    await self.send_due()
            except Error as problem:
                log.warning("nothing can be taken from the outbox now: %s", problem)
                await asyncio.sleep(_REST_SECONDS)

    async def send_due(self) -> int:
        """Send what is due now; how many there were."""
        parcels = await self._store.outbox.claim(
            _AT_ONCE,
            lease_seconds=_LEASE_SECONDS,
            platforms=set(self._adapters),
            idempotent=self._idempotent,
        )
        await asyncio.gather(*(self._send(parcel) for parcel in parcels))
        return len(parcels)

    async def drain(self) -> None:
        """Send what is due before the end, and nothing that would have to wait."""
        while await self.send_due():
            pass

    async def _send(self, parcel: Parcel) -> None:
        try:
            await self._adapters[parcel.platform].send(_outgoing(parcel))
        except PlatformError as problem:
            await self._note(parcel, problem)
        else:
            await self._settle(parcel, None)

    async def _note(self, parcel: Parcel, problem: PlatformError) -> None:
        log.warning("delivery %s to %s failed: %s", parcel.delivery, parcel.platform, problem)
        await self._settle(parcel, problem)

    async def _settle(self, parcel: Parcel, problem: PlatformError | None) -> None:
        outbox = self._store.outbox
        try:
            if problem is None:
                await outbox.done(parcel)
            elif isinstance(problem, OutcomeUnknown):
                await outbox.failed(parcel, problem.message, outcome="unknown")
            elif problem.retryable and parcel.attempts < self._tries:
                pause = _pause(parcel, problem)
                await outbox.failed(parcel, problem.message, retry_after=pause)
            else:
                await outbox.failed(parcel, problem.message, outcome="dead")
        except StaleWrite as late:
            log.warning("delivery %s was settled by another node: %s", parcel.delivery, late)


def _outgoing(parcel: Parcel) -> Outgoing:
    return Outgoing(
        delivery=parcel.delivery,
        account=parcel.account,
        chat_id=parcel.chat_id,
        thread_id=parcel.thread_id,
        text=parcel.body["text"],
    )


def _pause(parcel: Parcel, problem: PlatformError) -> float:
    """What the platform asks for; else longer after every try, and never all at the same moment."""
    if isinstance(problem, RateLimited):
        asked: float = getattr(problem, "retry_after", 1.0)
        return asked
    return min(_LONGEST_PAUSE, 2.0**parcel.attempts) * random.uniform(0.5, 1.0)  # noqa: S311
