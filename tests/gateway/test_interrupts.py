"""Messages during a turn: they wait, interrupt it, steer it, or stop it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import msgspec
import pytest

from tertulia import Source, aio
from tertulia.agents.base import Event, Request, Step, Tool, ToolResult
from tertulia.agents.parrot import ParrotAgent
from tertulia.core.message import ToolCall
from tertulia.gateway.interrupts import Interrupts, TurnSignals
from tertulia.platforms.settings import PlatformSettings
from tests.gateway.blocking_agent import BlockingAgent, private_source
from tests.gateway.running_gateway import (
    ANA,
    ANYBODY,
    BEN,
    CARA,
    FAST,
    OPEN,
    PATIENCE,
    App,
    RunningGateway,
    Scripted,
    rules,
    running_gateway,
)


async def turn_in_progress(node: RunningGateway, agent: BlockingAgent, text: str) -> None:
    await node.until(lambda: text in agent.begun, f"{text} is being answered")
    await node.until(lambda: len(node.gateway.pipeline.interrupts) > 0, "the turn is known")


# -- queue, interrupt, steer


def test_message_during_a_turn_waits_by_default(where: str) -> None:
    async def play() -> None:
        agent = BlockingAgent()
        async with running_gateway(where, agent) as node:
            await node.app.get("one")
            await turn_in_progress(node, agent, "one")
            await node.app.get("two")
            assert await _immediate(node, "/queue") == "1. two"
            assert "answering, 1 in the queue" in await _immediate(node, "/status")
            await asyncio.sleep(0.6)
            assert agent.begun == ["one"]
            agent.goes_on.set()
            await node.quiet()
            assert node.app.to(ANA)[2:] == ["Well, one", "Well, two"]

    asyncio.run(play())


async def _immediate(node: RunningGateway, text: str) -> str:
    """What a question is answered while a turn is under way."""
    before = len(node.app.to(ANA))
    await node.app.get(text)
    await node.until(lambda: len(node.app.to(ANA)) > before, f"{text} is answered at once")
    return node.app.to(ANA)[-1]


def test_interrupt_ends_the_turn_and_answers_the_new_message(where: str) -> None:
    async def play() -> None:
        agent = BlockingAgent()
        async with running_gateway(where, agent, rules=rules(meanwhile="interrupt")) as node:
            await node.app.get("one")
            await turn_in_progress(node, agent, "one")
            agent_two = asyncio.create_task(node.app.get("two"))
            await turn_in_progress(node, agent, "two")
            agent.goes_on.set()
            await agent_two
            await node.quiet()
            # What had been shown of the first answer is kept and delivered.
            assert node.app.to(ANA) == ["Well", "Well, two"]
            assert await node.told() == ["one", "Well", "two", "Well, two"]

    asyncio.run(play())


OWNER_OF_GROUP = Source("telegram", "-5", chat_type="group", user_id="42", user_name="Ana")
MALLORY = Source("telegram", "-5", chat_type="group", user_id="66", user_name="Mallory")
SHARED = msgspec.structs.replace(FAST, group_sessions_per_user=False)
OWNED = rules(
    meanwhile="steer",
    platforms={
        "telegram": PlatformSettings(
            admission="everyone", groups="always", owners=("42",), allow=("66",)
        ),
        "signal": OPEN,
    },
)


@pytest.mark.parametrize("link", [False, True], ids=["group", "linked"])
def test_only_the_person_of_a_turn_steers_it(where: str, tmp_path: Path, *, link: bool) -> None:
    """The tools were chosen for that person; others may have a lower role."""

    async def play() -> None:
        called, goes_on = asyncio.Event(), asyncio.Event()
        turns: list[tuple[str, list[str], list[str]]] = []

        async def script(request: Request) -> AsyncGenerator[Event, None]:
            yield Step(None, (ToolCall("c1", "look", {}),))
            called.set()
            await goes_on.wait()
            yield ToolResult("c1", "sunny")
            steered = list(await request.steer())
            turns.append((request.text, steered, sorted(tool.name for tool in request.tools)))
            yield Step("sunny")

        first, other = (ANA, CARA) if link else (OWNER_OF_GROUP, MALLORY)
        async with running_gateway(
            where, Scripted(script), rules=OWNED, settings=SHARED, apps=[App(), App("signal")],
            programs=tmp_path / "programs",
        ) as node:  # fmt: skip
            if link:
                people = node.store.people
                await people.accept_link(CARA, await people.offer_link(ANA))
            await node.apps[first.platform].get("the weather?", first)
            await asyncio.wait_for(called.wait(), PATIENCE)
            await node.apps[other.platform].get("run curl evil", other)
            await node.apps[first.platform].get("in the evening", first)
            goes_on.set()
            await node.quiet()
            # A chat of a lower role that is linked lowers the tools of all.
            lowered = [[], []] if link else [["process", "schedule", "terminal"], ["schedule"]]
            assert turns == [
                ("the weather?", ["in the evening"], lowered[0]), ("run curl evil", [], lowered[1]),
            ]  # fmt: skip

    asyncio.run(play())


def test_retry_answers_only_a_message_of_the_same_person(where: str, tmp_path: Path) -> None:
    """Otherwise the words of a member would be answered with the tools of the owner."""

    async def play() -> None:
        async def script(request: Request) -> AsyncGenerator[Event, None]:
            yield Step(" ".join(sorted(tool.name for tool in request.tools)))

        async with running_gateway(
            where, Scripted(script), rules=OWNED, settings=SHARED, programs=tmp_path / "programs"
        ) as node:
            assert await node.hears("run curl evil", MALLORY) == "schedule"
            assert "not yours" in await node.hears("/retry", OWNER_OF_GROUP)
            assert await node.hears("/retry", MALLORY) == "schedule"

    asyncio.run(play())


def test_steer_takes_the_message_into_the_turn(where: str) -> None:
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


def test_parrot_agent_is_steered(where: str) -> None:
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


def test_stop_ends_only_the_turn_in_progress(where: str) -> None:
    async def play() -> None:
        agent = BlockingAgent()
        async with running_gateway(where, agent) as node:
            await node.app.get("one")
            await turn_in_progress(node, agent, "one")
            await node.app.get("two")
            await node.app.get("/stop")
            await turn_in_progress(node, agent, "two")
            assert agent.ended == ["one"]
            await asyncio.sleep(0.6)  # a stop that was heard does not end the next one
            assert agent.ended == ["one"]
            agent.goes_on.set()
            await node.quiet()
            assert sorted(node.app.to(ANA)) == ["Stopped.", "Well", "Well, two"]
            assert await node.hears("/stop") == "There is nothing to stop."
            assert await node.hears("three") == "Well, three"

    asyncio.run(play())


def test_stop_does_not_end_the_turn_of_another_person(where: str) -> None:
    async def play() -> None:
        agent = BlockingAgent()
        async with running_gateway(where, agent) as node:
            await node.app.get("one")
            await turn_in_progress(node, agent, "one")
            await node.app.get("/stop", BEN)
            await node.until(lambda: node.app.to(BEN), "Ben is answered")
            assert node.app.to(BEN) == ["There is nothing to stop."]
            assert agent.ended == []
            agent.goes_on.set()
            await node.quiet()

    asyncio.run(play())


def test_stop_reaches_the_node_with_the_turn(where: str) -> None:
    """Two gateways on one store; the stop comes in on the other one."""

    async def play() -> None:
        agent = BlockingAgent()
        idle = rules(turns=1)
        async with running_gateway(where, agent, rules=idle) as here:
            await here.app.get("one")
            await turn_in_progress(here, agent, "one")
            async with running_gateway(where, BlockingAgent(), apps=[App()]) as there:
                await there.app.get("/stop")
                await there.quiet()
            await here.quiet()
            heard = [*here.app.to(ANA), *there.app.to(ANA)]
            assert sorted(heard) == ["Stopped.", "Well"]
            assert agent.ended == ["one"]

    asyncio.run(play())


@pytest.mark.parametrize("waiting", [0, pytest.param(3000, marks=pytest.mark.check)])
def test_one_poll_serves_all_turns(where: str, waiting: int) -> None:
    """A poll is one query of one page for all turns, and continues where the last one ended."""

    async def play() -> None:
        async with aio.open(where, settings=FAST) as store:
            interrupts = Interrupts(store, ANYBODY)
            for number in range(waiting):
                store.sync.inbox.put(private_source(number % 50), "hello", message_id=number)
            queries = 0
            find = store.inbox.find

            async def counted(**details: object) -> object:
                nonlocal queries
                queries += 1
                return await find(**details)  # type: ignore[arg-type]

            store.inbox.find = counted  # type: ignore[method-assign,assignment]
            stopping = [private_source(number) for number in (7, 9)]
            keys = [store.sessions.key(who) for who in map(private_source, range(50))]
            with _turns(interrupts, keys) as signals:
                for who in stopping:
                    await store.inbox.put(who, "/stop", message_id="stop")
                polls = 0
                while not all(signals[store.sessions.key(who)].stop.is_set() for who in stopping):
                    await interrupts.poll()
                    polls += 1
                    assert polls <= waiting // 500 + 2
                assert queries == polls
                stopped = [key for key, one in signals.items() if one.stop.is_set()]
                assert stopped == [store.sessions.key(who) for who in stopping]
            assert len(interrupts) == 0

    asyncio.run(play())


@contextlib.contextmanager
def _turns(interrupts: Interrupts, keys: list[str]) -> Iterator[dict[str, TurnSignals]]:
    with contextlib.ExitStack() as stack:
        yield {key: stack.enter_context(interrupts.turn(key)) for key in keys}
