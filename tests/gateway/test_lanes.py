"""One turn at a time for each conversation, fair between them; and what comes meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest

from tertulia import Source, aio
from tertulia.agents.base import Delta, Event, Request, Step, Tool, ToolResult
from tertulia.agents.parrot import ParrotAgent
from tertulia.core.message import ToolCall
from tertulia.errors import AgentStopped
from tertulia.gateway.interrupts import (
    Interrupts,
    TurnSignals,
)
from tertulia.gateway.settings import GatewaySettings
from tertulia.testing import FakeClock
from tests.gateway.scene import (
    ANA,
    ANYBODY,
    BEN,
    FAST,
    PATIENCE,
    App,
    Echo,
    House,
    Scripted,
    rules,
    running_gateway,
)


def dm(number: int) -> Source:
    return Source("telegram", f"{number}", user_id=f"{number}")


class Slow:
    """Writes a word, then waits until it is told to go on, or to stop."""

    name = "slow"

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.goes_on = asyncio.Event()
        self.most = self._inside = 0

    async def run(self, request: Request) -> AsyncGenerator[Event, None]:
        self.begun.append(request.text)
        self._inside += 1
        self.most = max(self.most, self._inside)
        try:
            yield Delta("Well")
            waits = [asyncio.ensure_future(event.wait()) for event in (request.stop, self.goes_on)]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
            if request.stop.is_set():
                raise AgentStopped("Stopped.", partial="Well")
            yield Step("Well, " + request.text)
        finally:
            self._inside -= 1
            self.ended.append(request.text)

    async def close(self) -> None:
        pass


async def under_way(node: House, agent: Slow, text: str) -> None:
    await node.until(lambda: text in agent.begun, f"{text} is being answered")
    await node.until(lambda: len(node.gateway.pipeline.interrupts) > 0, "the turn is known")


# -- order and width


def test_a_conversation_is_answered_in_order_and_all_of_them_are(where: str) -> None:
    async def play() -> None:
        async with running_gateway(where, Echo()) as node:
            texts = [f"{number}" for number in range(8)]
            people = [dm(number) for number in range(6)]
            for text in texts:
                await asyncio.gather(*(node.app.get(text, who) for who in people))
            await node.quiet()
            for who in people:
                assert node.app.to(who) == [f"re {text}" for text in texts]
                told = await node.told(who)
                assert told == [line for text in texts for line in (text, f"re {text}")]

    asyncio.run(play())


def test_one_who_writes_much_keeps_nobody_waiting(where: str) -> None:
    async def play() -> None:
        agent = Slow()
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


def test_no_more_turns_than_the_rule_allows(where: str) -> None:
    async def play() -> None:
        agent = Slow()
        async with running_gateway(where, agent, rules=rules(turns=3)) as node:
            for number in range(9):
                await node.app.get("hello", dm(number))
            await node.until(lambda: len(agent.begun) == 3, "three begin")
            await asyncio.sleep(0.2)
            assert len(agent.begun) == 3
            agent.goes_on.set()
            await node.quiet()
            assert agent.most == 3
            assert len(node.app.sent) == 9

    asyncio.run(play())


def test_what_the_platform_repeats_is_answered_once(where: str) -> None:
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


def test_what_is_written_in_a_row_is_answered_together(where: str) -> None:
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


# -- meanwhile


def test_by_default_it_waits(where: str) -> None:
    async def play() -> None:
        agent = Slow()
        async with running_gateway(where, agent) as node:
            await node.app.get("one")
            await under_way(node, agent, "one")
            await node.app.get("two")
            assert await _immediate(node, "/queue") == "1. two"
            assert "answering, 1 in the queue" in await _immediate(node, "/status")
            await asyncio.sleep(0.6)
            assert agent.begun == ["one"]
            agent.goes_on.set()
            await node.quiet()
            assert node.app.to(ANA)[2:] == ["Well, one", "Well, two"]

    asyncio.run(play())


async def _immediate(node: House, text: str) -> str:
    """What a question is answered while a turn is under way."""
    before = len(node.app.to(ANA))
    await node.app.get(text)
    await node.until(lambda: len(node.app.to(ANA)) > before, f"{text} is answered at once")
    return node.app.to(ANA)[-1]


def test_interrupt_ends_the_turn_and_answers_the_new_one(where: str) -> None:
    async def play() -> None:
        agent = Slow()
        async with running_gateway(where, agent, rules=rules(meanwhile="interrupt")) as node:
            await node.app.get("one")
            await under_way(node, agent, "one")
            agent_two = asyncio.create_task(node.app.get("two"))
            await under_way(node, agent, "two")
            agent.goes_on.set()
            await agent_two
            await node.quiet()
            # What had been shown of the first answer is kept and delivered.
            assert node.app.to(ANA) == ["Well", "Well, two"]
            assert await node.told() == ["one", "Well", "two", "Well, two"]

    asyncio.run(play())


def test_steer_takes_it_into_the_turn(where: str) -> None:
    """The agent sees it in its next model call, and it is answered once."""

    async def play() -> None:
        called, goes_on = asyncio.Event(), asyncio.Event()
        seen: list[list[str]] = []

        async def script(request: Request) -> AsyncGenerator[Event, None]:
            await request.steer()
            yield Step(None, (ToolCall("c1", "look", {}),))
            called.set()
            await goes_on.wait()
            yield ToolResult("c1", "blue")
            steered = list(await request.steer())
            seen.append([str(m["content"]) for m in await request.history(format="text")])
            yield Step(f"blue, and {steered}")

        async with running_gateway(where, Scripted(script), rules=rules(meanwhile="steer")) as node:
            await node.app.get("what colour?")
            await asyncio.wait_for(called.wait(), PATIENCE)
            await node.app.get("in the evening", message_id="steered")
            await node.app.get("/title Colours")
            await node.app.get("and after the command?")
            goes_on.set()
            await node.quiet()
            heard = node.app.to(ANA)
            assert heard[0] == "blue, and ['in the evening']"
            assert heard[1].startswith("This conversation is now called")
            assert heard[2].startswith("blue, and []")
            assert "in the evening" in seen[0]
            # What was taken in is known to have come, and is not answered again.
            assert await node.say("in the evening", message_id="steered") == []
            told = await node.told()
            assert told.count("in the evening") == 1
            # It is forgotten with the conversation.
            await node.hears("/forget yes")
            kept = (await node.store.inbox.find(limit=100)).items
            assert not [one for one in kept if "evening" in (one.text or "")]

    asyncio.run(play())


def test_the_parrot_is_steered_too(where: str) -> None:
    async def play() -> None:
        called, goes_on = asyncio.Event(), asyncio.Event()

        async def look(arguments: object) -> str:
            called.set()
            await goes_on.wait()
            return "blue"

        tool = Tool("look", "looks", {"type": "object", "properties": {}}, look)
        async with running_gateway(
            where, ParrotAgent(), rules=rules(meanwhile="steer"), tools=[tool]
        ) as node:
            await node.app.get("call look")
            await asyncio.wait_for(called.wait(), PATIENCE)
            await node.app.get("hurry")
            goes_on.set()
            await node.quiet()
            assert node.app.to(ANA) == ["look gave: blue\n\nMeanwhile you said: hurry"]

    asyncio.run(play())


# -- stop


def test_stop_ends_the_answer_under_way_and_only_that(where: str) -> None:
    async def play() -> None:
        agent = Slow()
        async with running_gateway(where, agent) as node:
            await node.app.get("one")
            await under_way(node, agent, "one")
            await node.app.get("two")
            await node.app.get("/stop")
            await under_way(node, agent, "two")
            assert agent.ended == ["one"]
            await asyncio.sleep(0.6)  # a stop that was heard does not end the next one
            assert agent.ended == ["one"]
            agent.goes_on.set()
            await node.quiet()
            assert sorted(node.app.to(ANA)) == ["Stopped.", "Well", "Well, two"]
            assert await node.hears("/stop") == "There is nothing to stop."
            assert await node.hears("three") == "Well, three"

    asyncio.run(play())


def test_nobody_stops_anothers_turn(where: str) -> None:
    async def play() -> None:
        agent = Slow()
        async with running_gateway(where, agent) as node:
            await node.app.get("one")
            await under_way(node, agent, "one")
            await node.app.get("/stop", BEN)
            await node.until(lambda: node.app.to(BEN), "Ben is answered")
            assert node.app.to(BEN) == ["There is nothing to stop."]
            assert agent.ended == []
            agent.goes_on.set()
            await node.quiet()

    asyncio.run(play())


def test_stop_reaches_the_node_that_answers(where: str) -> None:
    """Two gateways on one store; the stop comes in on the other one."""

    async def play() -> None:
        agent = Slow()
        idle = rules(turns=1)
        async with running_gateway(where, agent, rules=idle) as here:
            await here.app.get("one")
            await under_way(here, agent, "one")
            async with running_gateway(where, Slow(), apps=[App()]) as there:
                await there.app.get("/stop")
                await there.quiet()
            await here.quiet()
            heard = [*here.app.to(ANA), *there.app.to(ANA)]
            assert sorted(heard) == ["Stopped.", "Well"]
            assert agent.ended == ["one"]

    asyncio.run(play())


@pytest.mark.parametrize("waiting", [0, 3000])
def test_one_look_serves_all_turns(where: str, waiting: int) -> None:
    """However many turns are under way: a look is one query, of one page, and goes on where it
    was."""

    async def play() -> None:
        async with aio.open(where, settings=FAST) as store:
            meanwhile = Interrupts(store, ANYBODY)
            for number in range(waiting):
                store.sync.inbox.put(dm(number % 50), "hello", message_id=number)
            asked = 0
            find = store.inbox.find

            async def counted(**details: object) -> object:
                nonlocal asked
                asked += 1
                return await find(**details)  # type: ignore[arg-type]

            store.inbox.find = counted  # type: ignore[method-assign,assignment]
            stopping = [dm(number) for number in (7, 9)]
            keys = [store.sessions.key(who) for who in map(dm, range(50))]
            with _turns(meanwhile, keys) as signals:
                for who in stopping:
                    await store.inbox.put(who, "/stop", message_id="stop")
                looks = 0
                while not all(signals[store.sessions.key(who)].stop.is_set() for who in stopping):
                    await meanwhile.look()
                    looks += 1
                    assert looks <= waiting // 500 + 2
                assert asked == looks
                stopped = [key for key, one in signals.items() if one.stop.is_set()]
                assert stopped == [store.sessions.key(who) for who in stopping]
            assert len(meanwhile) == 0

    asyncio.run(play())


@contextlib.contextmanager
def _turns(meanwhile: Interrupts, keys: list[str]) -> Iterator[dict[str, TurnSignals]]:
    with contextlib.ExitStack() as stack:
        yield {key: stack.enter_context(meanwhile.turn(key)) for key in keys}


def test_an_idle_gateway_does_not_spin(where: str) -> None:
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
