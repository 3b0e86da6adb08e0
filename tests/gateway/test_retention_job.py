"""The retention of the store, as a task of the gateway."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tertulia import Settings, Source, aio
from tertulia.gateway.retention_job import RetentionJob
from tertulia.testing import FakeClock
from tests.gateway.running_gateway import FAST, running_gateway

ANA = Source("telegram", "42", user_id="42")


def test_everything_that_is_no_longer_kept_is_removed(tmp_path: Path) -> None:
    clock = FakeClock()

    async def run() -> None:
        settings = Settings(zone="UTC", durability="fast")
        async with aio.open(tmp_path / "talk.db", settings=settings, clock=clock) as store:
            for number in range(120):
                await store.inbox.put(ANA, "hola", message_id=number)
                (item,) = await store.inbox.claim()
                await store.inbox.done(item)
            clock.forward(days=31)
            job = RetentionJob(store, every=0.01, pause=0)
            assert (await job.remove()).messages == 120
            assert (await store.inbox.find(limit=1)).items == ()
            assert (await job.remove()).total == 0

    asyncio.run(run())


def test_gateway_runs_it(tmp_path: Path) -> None:
    clock = FakeClock()

    async def play() -> None:
        path = str(tmp_path / "talk.db")
        async with aio.open(path, settings=FAST, clock=clock) as store:
            await store.inbox.put(ANA, "hola", message_id=1)
            await store.inbox.done(*await store.inbox.claim())
        clock.forward(days=31)
        async with running_gateway(path, clock=clock) as node:

            async def is_removed() -> bool:
                return not (await node.store.inbox.find(limit=1)).items

            await node.until(is_removed, "the settled message is removed")

    asyncio.run(play())
