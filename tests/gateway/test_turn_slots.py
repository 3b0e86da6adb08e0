"""Slots: turns of a node and of a person are limited, and free slots go round in order."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from tertulia.core.source import Source
from tertulia.errors import LimitExceeded
from tertulia.gateway.turn_slots import TurnSlots
from tertulia.records.queues.inbox import claim_person


def test_person_has_a_limit_of_their_own() -> None:
    async def run() -> None:
        slots = TurnSlots(4, 2)
        async with AsyncExitStack() as stack:
            for _ in range(2):
                await stack.enter_async_context(slots.slot("ana", seconds=60))
            with pytest.raises(LimitExceeded) as caught:
                await stack.enter_async_context(slots.slot("ana", seconds=60))
            assert caught.value.retry_after > 0
            await stack.enter_async_context(slots.slot("bob", seconds=60))
            assert slots.running == {"ana": 2, "bob": 1}
        assert not slots.running
        assert slots.free == 4

    asyncio.run(run())


def test_caller_waits_for_a_slot_and_not_for_ever() -> None:
    async def run() -> None:
        slots = TurnSlots(1, 1)
        async with slots.slot("ana", seconds=60):
            with pytest.raises(LimitExceeded, match="1 turns"):
                async with slots.slot("bob", seconds=0.01):
                    raise AssertionError
            waiting = asyncio.create_task(_hold(slots, "bob"))
            await asyncio.sleep(0)
            with pytest.raises(LimitExceeded):  # as many wait as may run
                async with slots.slot("eve", seconds=60):
                    raise AssertionError
        await waiting
        assert slots.free == 1

    asyncio.run(run())


def test_worker_and_callers_get_free_slots_in_order() -> None:
    async def run() -> None:
        slots = TurnSlots(2, 2)
        order: list[str] = []

        async def wait_for_claim() -> None:
            await slots.reserve_next()
            order.append("worker")
            slots.release_reserved(1)

        async def call(person: str) -> None:
            async with slots.slot(person, seconds=60):
                order.append(person)

        assert slots.reserve(10) == 2
        assert slots.reserve(10) == 0
        tasks = [asyncio.create_task(call("ana"))]
        await asyncio.sleep(0)
        tasks.append(asyncio.create_task(wait_for_claim()))
        await asyncio.sleep(0)
        tasks.append(asyncio.create_task(call("bob")))
        await asyncio.sleep(0)
        slots.start_reserved("eve")
        slots.release("eve")
        await asyncio.gather(*tasks)
        assert order == ["ana", "worker", "bob"]
        slots.release_reserved(1)
        assert slots.free == 2

    asyncio.run(run())


def test_cancelled_waiter_leaves_its_slot() -> None:
    async def run() -> None:
        slots = TurnSlots(1, 1)
        async with slots.slot("ana", seconds=60):
            waiting = asyncio.create_task(_hold(slots, "bob"))
            late = asyncio.create_task(slots.reserve_next())
            await asyncio.sleep(0)
            waiting.cancel()
        late.cancel()
        await asyncio.gather(waiting, late, return_exceptions=True)
        assert slots.free == 1

    asyncio.run(run())


def test_author_owns_the_slot_else_the_chat() -> None:
    assert claim_person(Source("telegram", "5", user_id="7")) == "telegram:7"
    group = Source("telegram", "-5", chat_type="group")
    assert claim_person(group) != claim_person(Source("telegram", "-6", chat_type="group"))


async def _hold(slots: TurnSlots, person: str) -> None:
    async with slots.slot(person, seconds=60):
        pass
