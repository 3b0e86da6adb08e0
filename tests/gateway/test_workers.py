"""Workers: one turn at a time for each conversation, fair between conversations."""

from __future__ import annotations

import asyncio
from typing import Any

from tertulia.gateway.settings import GatewaySettings
from tertulia.gateway.workers import Worker
from tertulia.testing import FakeClock
from tests.gateway.blocking_agent import BlockingAgent, private_source
from tests.gateway.running_gateway import ANA, BEN, PATIENCE, Echo, rules, running_gateway


def test_each_conversation_is_answered_in_order(where: str) -> None:
    async def play() -> None:
        async with running_gateway(where, Echo()) as node:
            texts = [f"{number}" for number in range(8)]
            people = [private_source(number) for number in range(6)]
            for text in texts:
                await asyncio.gather(*(node.app.get(text, who) for who in people))
            await node.quiet()
            for who in people:
                assert node.app.to(who) == [f"re {text}" for text in texts]
                told = await node.told(who)
                assert told == [line for text in texts for line in (text, f"re {text}")]

    asyncio.run(play())


def test_busy_conversation_does_not_delay_others(where: str) -> None:
    async def play() -> None:
        agent = BlockingAgent()
        async with running_gateway(where, agent, rules=rules(turns=2)) as node:
            for number in range(10):
                await node.app.get(f"ana {number}", ANA)
            await node.app.get("ben", BEN)
            await node.until(lambda: len(agent.begun) == 2, "two begin")
            # Who of them comes first is not promised: both may have been taken in one go.
            assert sorted(agent.begun) == ["ana 0", "ben"]
            agent.goes_on.set()
            await node.quiet()
            assert node.app.to(ANA) == [f"Well, ana {number}" for number in range(10)]

    asyncio.run(play())


def test_turns_in_progress_are_limited(where: str) -> None:
    async def play() -> None:
        agent = BlockingAgent()
        async with running_gateway(where, agent, rules=rules(turns=3)) as node:
            for number in range(9):
                await node.app.get("hello", private_source(number))
            await node.until(lambda: len(agent.begun) == 3, "three begin")
            await asyncio.sleep(0.2)
            assert len(agent.begun) == 3
            agent.goes_on.set()
            await node.quiet()
            assert agent.most == 3
            assert len(node.app.sent) == 9

    asyncio.run(play())


def test_repeated_message_is_answered_once(where: str) -> None:
    async def play() -> None:
        agent = Echo()
        async with running_gateway(where, agent) as node:
            await asyncio.gather(*(node.app.get("hello", message_id="1") for _ in range(5)))
            await node.quiet()
            assert await node.say("hello", message_id="1") == []
            assert agent.asked == ["hello"]
            assert node.app.to(ANA) == ["re hello"]
            await asyncio.gather(*(node.app.get("hello", message_id=None) for _ in range(2)))
            await node.quiet()
            assert len(node.app.to(ANA)) == 3  # without an id, each is one of its own

    asyncio.run(play())


def test_gathered_messages_are_answered_together(where: str) -> None:
    async def play() -> None:
        agent, clock = Echo(), FakeClock()
        async with running_gateway(
            where, agent, rules=rules(gather_seconds=0.5), clock=clock
        ) as node:
            for text in ("I have", "a question"):
                await node.app.get(text)
            await node.app.get("me too", BEN)
            clock.forward(seconds=1)  # only now: however slowly they came, it was in a row
            await node.quiet()
            assert sorted(agent.asked) == ["I have\na question", "me too"]

    asyncio.run(play())


def test_idle_gateway_does_not_spin(where: str) -> None:
    async def play() -> None:
        async with running_gateway(where, Echo(), rules=GatewaySettings()) as node:
            claims = 0

            def counting(claim: Any) -> Any:
                async def counted(*args: Any, **details: Any) -> Any:
                    nonlocal claims
                    claims += 1
                    return await claim(*args, **details)

                return counted

            for box in (node.store.inbox, node.store.outbox):
                setattr(box, "claim", counting(box.claim))  # noqa: B010 — a method is replaced
            # For a platform that has no adapter here: it stays waiting, and nobody spins.
            await node.store.outbox.put("hello", "discord:1")
            await asyncio.sleep(1.5)
            assert claims <= 6
            (left,) = (await node.store.outbox.find()).items
            assert (left.state, left.attempts) == ("waiting", 0)

    asyncio.run(play())


def test_item_that_is_claimed_again_is_renewed_until_its_own_task_ends() -> None:
    """The claim of a slow item expired, and this node claimed it again: two tasks, one item."""

    class Item:
        id, attempts = 1, 1

    class RepeatingQueue:
        def __init__(self) -> None:
            self.renewed = asyncio.Event()

        async def wait(self, seconds: float) -> bool:
            return True

        async def claim(self, limit: int = 10, *, lease_seconds: float = 60) -> list[Item]:
            return [Item()]

        async def renew(self, item: Item, /, *, lease_seconds: float = 60) -> None:
            self.renewed.set()

    async def play() -> None:
        ends = [asyncio.Event(), asyncio.Event()]
        waiting = iter(ends)

        async def run(item: Item) -> None:
            await next(waiting).wait()

        queue = RepeatingQueue()
        worker = Worker("inbox", queue, run, limit=2, lease=0.03)
        await worker.claim_and_start()
        await worker.claim_and_start()
        await asyncio.sleep(0)  # both tasks begin
        ends[0].set()
        for _ in range(5):
            await asyncio.sleep(0)  # the first task ends
        renewing = asyncio.create_task(worker.renew_claims())
        await queue.renewed.wait()
        renewing.cancel()
        ends[1].set()
        assert await worker.drain(PATIENCE) == 0

    asyncio.run(asyncio.wait_for(play(), PATIENCE))
