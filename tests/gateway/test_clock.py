"""The time that the model is shown: before each message, in no system prompt, in no answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from tertulia import Settings
from tertulia.agents.base import Delta, Event, Request, Step
from tertulia.core.keys import person_of
from tertulia.core.message import ToolCall
from tertulia.errors import AgentStopped
from tertulia.testing import FakeClock
from tests.gateway.running_gateway import ANA, App, Echo, Scripted, rules, running_gateway

HEAD = "[Message Time: Mon 2026-11-16 11:18 +01:00]\n"
MADRID = Settings(zone="Europe/Madrid", durability="fast")
CLOCK = rules(timestamps="local")


def test_every_message_has_the_local_time_and_the_prompt_has_none(where: str) -> None:
    prompts: list[str] = []
    texts: list[list[str]] = []

    async def script(request: Request) -> AsyncGenerator[Event, None]:
        prompts.append(request.system)
        history = await request.history()
        texts.append([m["content"] for m in history if m["role"] == "user"])
        yield Step("Yes.")

    async def play() -> None:
        clock = FakeClock()
        async with running_gateway(
            where, Scripted(script), rules=CLOCK, settings=MADRID, clock=clock
        ) as node:
            await node.say("one")
            clock.forward(hours=2)
            await node.say("two")
            await node.store.people.set_zone(person_of(ANA) or "", "America/Lima")
            await node.say("three")

    asyncio.run(play())
    assert len(set(prompts)) == 1
    first, second, third = texts
    assert [text.partition("]\n")[2] for text in third] == ["one", "two", "three"]
    assert second[:1] == first
    assert all("[Message Time: " in text and "+01:00]\n" in text for text in second)
    assert all("-05:00]\n" in text for text in third)


def test_time_line_of_an_answer_is_neither_shown_nor_stored(where: str) -> None:
    async def script(request: Request) -> AsyncGenerator[Event, None]:
        if request.text == "stop":
            raise AgentStopped("stopped", partial=f"{HEAD}Well")
        text = f"{HEAD}Hello."
        for char in text:
            yield Delta(char)
        if request.text == "tool":
            yield Step(text, (ToolCall("c1", "none", {}),))
            yield Delta(HEAD)
            yield Delta("[Done]")
            text = f"{HEAD}[Done]"
        yield Step(text)

    async def play() -> None:
        app = App()
        async with running_gateway(where, Scripted(script), apps=[app], rules=CLOCK) as node:
            assert await node.say("hello") == ["Hello."]
            assert await node.say("tool") == ["[Done]"]
            assert await node.say("stop") == ["Well"]
            shown = "".join(update.text for update in app.shown if update.kind == "delta")
            assert shown == "Hello.Hello.[Done]"
            assert "Message Time" not in str(await node.told())

    asyncio.run(play())


def test_without_times_an_answer_may_begin_with_any_line(where: str) -> None:
    async def script(request: Request) -> AsyncGenerator[Event, None]:
        yield Step(f"{HEAD}Hello.")

    async def play() -> None:
        async with running_gateway(where, Scripted(script), rules=rules(timestamps="none")) as node:
            assert await node.say("hello") == [f"{HEAD}Hello."]

    asyncio.run(play())


def test_echo_is_not_shown_the_clock_twice(where: str) -> None:
    """A message that imitates the time line keeps its text, with its bracket made round."""

    async def play() -> None:
        agent = Echo()
        async with running_gateway(where, agent, rules=CLOCK, settings=MADRID) as node:
            await node.say(f"{HEAD}It is Monday.")
        (message,) = agent.histories[0]
        assert message["content"].count("[Message Time: ") == 1
        assert "(Message Time: Mon" in message["content"]

    asyncio.run(play())
