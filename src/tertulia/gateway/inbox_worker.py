"""The worker of the inbox: it claims messages for the slots that are free, fair by person."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from tertulia import aio
from tertulia.gateway.turn_slots import TurnSlots
from tertulia.gateway.workers import WAIT_SECONDS, Worker
from tertulia.records.queues.base import MAX_LIMIT
from tertulia.records.queues.inbox import InboxItem, claim_person


class InboxWorker(Worker[InboxItem]):
    """Answers accepted messages, each in a slot that turns of other callers share."""

    def __init__(
        self,
        store: aio.Store,
        run: Callable[[InboxItem], Coroutine[Any, Any, None]],
        slots: TurnSlots,
        *,
        node: str | None = None,
    ) -> None:
        super().__init__("inbox", store.inbox, run, 0, lease=store.settings.lease_seconds)
        self._inbox = store.inbox
        self._slots = slots
        self._started = 0
        self._node = node

    async def claim_and_start(self) -> None:
        """Wait for a slot and for a message, claim what is due, and start a task for each."""
        async with self._retry_later():
            if self._slots.free:
                reserved = 0
                is_due = self._has_more or await self._wait(WAIT_SECONDS)
            else:
                await self._slots.reserve_next()
                reserved = 1
                try:
                    is_due = await self._wait(0)
                except BaseException:
                    self._slots.release_reserved(1)
                    raise
            self._has_more = await self._claim(reserved, is_due=is_due) > 0

    async def _claim(self, reserved: int, *, is_due: bool) -> int:
        """Claim due messages for the reserved slots and all free ones; return how many."""
        started_before = self._started
        if is_due:
            reserved += self._slots.reserve(MAX_LIMIT - reserved)
        try:
            if reserved and is_due:
                claim = self._inbox.claim(
                    reserved,
                    lease_seconds=self._lease,
                    per_person=self._slots.per_person,
                    running=dict(self._slots.running),
                    worker=self._node,
                )
                await self._start_claimed(claim)
        finally:
            started = self._started - started_before
            self._slots.release_reserved(reserved - started)
        return started

    async def _wait(self, seconds: float) -> bool:
        slots = self._slots
        return await self._inbox.wait(seconds, per_person=slots.per_person, running=slots.running)

    def _start(self, items: Sequence[InboxItem]) -> None:
        for item in items:
            self._slots.start_reserved(claim_person(item.source))
        self._started += len(items)
        super()._start(items)

    def _finish(self, task: asyncio.Task[None]) -> None:
        item = self._in_progress[task]
        super()._finish(task)
        self._slots.release(claim_person(item.source))
