"""Whatever goes wrong: the person is told plainly, the history is legal, nothing is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from tertulia import Settings, aio
from tertulia.agents.base import Delta, Event, Request, Step, ToolResult
from tertulia.core.budget import Budget
from tertulia.core.message import ToolCall
from tertulia.core.usage import Usage
from tertulia.errors import (
    AgentError,
    AgentFailed,
    AgentTimeout,
    AgentUnavailable,
    ContextOverflow,
    StoreUnavailable,
)
from tertulia.gateway.app import Gateway
from tests.gateway.scene import (
    ANA,
    BEN,
    FAST,
    PATIENCE,
    App,
    Echo,
    Scripted,
    rules,
    running_gateway,
)
from tests.servers.postgres import server

CALL = ToolCall("c1", "look", {})


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (AgentTimeout("SECRET"), "the model took too long"),
        (AgentUnavailable("SECRET"), "cannot be reached right now"),
        (AgentFailed("SECRET"), "something went wrong on the model's side"),
        (AgentError("SECRET"), "something went wrong on the model's side"),
        (ContextOverflow("SECRET"), "too long for the model"),
        (ValueError("SECRET"), "something went wrong on the model's side"),
        (AssertionError("SECRET"), "something went wrong on the model's side"),
    ],
)
@pytest.mark.parametrize("after", ["nothing", "a delta", "a call", "a result"])
def test_a_failure_is_told_plainly(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    problem: Exception,
    words: str,
    after: str,
) -> None:
    where = str(tmp_path / "talk.db")
    fails = [problem, problem]

    async def script(request: Request) -> AsyncGenerator[Event, None]:
        if fails:
            if after == "a delta":
                yield Delta("Well")
            if after in ("a call", "a result"):
                yield Step(None, (CALL,), usage=Usage(7, 1))
            if after == "a result":
                yield ToolResult("c1", "blue")
            raise fails.pop()
        yield Step("It works again.")

    async def play() -> None:
        async with running_gateway(where, Scripted(script)) as node:
            (told,) = await node.say("hello")
            assert words in told
            assert "SECRET" not in told
            fails.clear()
            (arrival,) = (await node.store.inbox.find()).items
            assert arrival.state == "done"
            assert await node.say("and now?") == ["It works again."]
            await node.say("/undo")
            assert await node.say("/retry") == ["It works again."]
            if not isinstance(problem, AgentError):
                assert "Traceback" in caplog.text
                assert "SECRET" in caplog.text

    with caplog.at_level(logging.WARNING):
        asyncio.run(play())


def test_an_agent_that_ends_without_an_answer_has_failed(where: str) -> None:
    async def script(request: Request) -> AsyncGenerator[Event, None]:
        yield Step(None, (CALL,))
        yield ToolResult("c1", "blue")

    async def play() -> None:
        async with running_gateway(where, Scripted(script)) as node:
            (told,) = await node.say("hello")
            assert "something went wrong" in told

    asyncio.run(play())


def test_an_agent_that_fails_after_its_answer_has_answered(where: str) -> None:
    async def script(request: Request) -> AsyncGenerator[Event, None]:
        yield Step("Hello.")
        raise AgentFailed("too late")

    async def play() -> None:
        async with running_gateway(where, Scripted(script)) as node:
            assert await node.say("hello") == ["Hello."]

    asyncio.run(play())


@pytest.mark.parametrize("turns", [2, 8])
def test_what_is_too_long_is_summed_up_and_asked_once_more(where: str, turns: int) -> None:
    async def play() -> None:
        limit = 100_000
        asked = 0

        async def script(request: Request) -> AsyncGenerator[Event, None]:
            nonlocal asked
            asked += 1
            shown = sum(len(str(message["content"])) for message in await request.history())
            if shown > limit:
                raise ContextOverflow("too much")
            yield Step("re " + request.text)

        async with running_gateway(where, Scripted(script)) as node:
            for _ in range(turns):
                await node.say("word " * 800)
            limit = turns * 6000
            before, asked = asked, 0
            assert before == turns
            assert await node.say("and now?") == ["re and now?"]
            assert asked == 2
            told = await node.store.transcript((await node.session()).id).history()
            assert "Summary" in str(told[0]["content"])
            limit = 10
            (told_so,) = await node.say("again")
            assert "too long for the model" in told_so
            assert "/new" in told_so

    asyncio.run(play())


def test_a_budget_that_is_spent_is_said_before_the_model_is_asked(where: str) -> None:
    async def play() -> None:
        agent = Echo()
        limited = msgspec.structs.replace(FAST, budgets=(Budget(per="person", tokens=20),))
        async with running_gateway(where, agent, settings=limited) as node:
            assert await node.say("one") == ["re one"]
            assert await node.say("two") == ["re two"]
            (told,) = await node.say("three")
            assert told
            assert "re three" not in told
            assert agent.asked == ["one", "two"]
            assert await node.say("mine", BEN) == ["re mine"]

    asyncio.run(play())


def test_a_bug_in_the_gateway_loses_nothing(where: str, caplog: pytest.LogCaptureFixture) -> None:
    async def play() -> None:
        async with running_gateway(where, Echo()) as node:
            converse, bugs = node.gateway.pipeline._converse, [KeyError("a bug")]

            async def broken(*args: Any) -> None:
                if bugs:
                    raise bugs.pop()
                await converse(*args)

            setattr(node.gateway.pipeline, "_converse", broken)  # noqa: B010 — a method is replaced
            assert await node.say("one") == ["re one"]
            assert bugs == []

    with caplog.at_level(logging.ERROR):
        asyncio.run(play())
    assert "KeyError: 'a bug'" in caplog.text


def test_what_cannot_be_answered_is_given_up_and_said_so(tmp_path: Path) -> None:
    async def play() -> None:
        async with running_gateway(str(tmp_path / "talk.db"), Echo(), rules=rules(tries=1)) as node:

            async def broken(*args: object) -> None:
                raise KeyError("a bug")

            setattr(node.gateway.pipeline, "_converse", broken)  # noqa: B010 — a method is replaced
            (told,) = await node.say("one")
            assert "given up" in told
            (arrival,) = (await node.store.inbox.find()).items
            assert (arrival.state, arrival.problem) == ("dead", "The gateway has a bug.")

    asyncio.run(play())


def test_a_message_that_ended_every_node_is_given_up(tmp_path: Path) -> None:
    async def play() -> None:
        where = str(tmp_path / "talk.db")
        async with aio.open(where, settings=FAST) as store:
            await store.inbox.put(ANA, "deadly", message_id="1")
            for _ in range(9):
                (arrival,) = await store.inbox.claim()
                await store.inbox.failed(arrival, "killed")
        agent = Echo()
        async with running_gateway(where, agent, rules=rules(tries=2)) as node:
            await node.quiet()
            assert "given up" in node.app.to(ANA)[0]
            assert agent.asked == []

    asyncio.run(play())


# -- the store is away


def _locking(where: str) -> apsw.Connection:
    """Another program that has the file; it waits for whoever writes, such as the indexer."""
    connection = apsw.Connection(where)
    connection.set_busy_timeout(round(PATIENCE * 1000))
    connection.execute("begin immediate")
    return connection


def test_a_locked_database_loses_nothing(tmp_path: Path) -> None:
    async def play() -> None:
        where = str(tmp_path / "talk.db")
        # What could not be settled while it was locked is taken again when its claim has run out.
        short = msgspec.structs.replace(FAST, busy_seconds=0.2, lease_seconds=5)
        async with running_gateway(where, Echo(), settings=short) as node:
            assert await node.say("one") == ["re one"]
            other = _locking(where)
            with pytest.raises(StoreUnavailable):
                await node.app.get("two", message_id="2")  # the platform is not told "received"
            await asyncio.sleep(0.5)
            other.execute("rollback")
            other.close()
            assert await node.say("two", message_id="2") == ["re two"]
            goes_on = asyncio.Event()

            async def slow(request: Request) -> AsyncGenerator[Event, None]:
                yield Delta("Well")
                await goes_on.wait()
                yield Step("re " + request.text)

            node.gateway.pipeline.agent = Scripted(slow)
            await node.app.get("three")
            await node.until(lambda: len(node.gateway.pipeline.interrupts) > 0, "it is under way")
            other = _locking(where)
            goes_on.set()
            await asyncio.sleep(1)
            other.execute("rollback")
            other.close()
            await node.quiet()
            assert node.app.to(ANA)[2:] == ["re three"]

    asyncio.run(play())


def test_a_server_that_is_restarted_loses_nothing() -> None:
    async def play(where: str, restart: Any) -> None:
        async with running_gateway(where, Echo()) as node:
            assert await node.say("one") == ["re one"]
            goes_on = asyncio.Event()

            async def slow(request: Request) -> AsyncGenerator[Event, None]:
                await goes_on.wait()
                yield Step("re " + request.text)

            node.gateway.pipeline.agent = Scripted(slow)
            await node.app.get("two")
            await node.until(lambda: len(node.gateway.pipeline.interrupts) > 0, "it is under way")
            await asyncio.to_thread(restart)
            goes_on.set()
            await node.until(lambda: len(node.app.to(ANA)) > 1, "it is answered")
            await node.until(node._is_quiet, "all is quiet")
            assert node.app.to(ANA) == ["re one", "re two"]

    with server() as running:
        asyncio.run(play(running.database(), running.restart))


# -- the end


def test_stopping_finishes_what_is_under_way_and_leaves_what_waits(where: str) -> None:
    async def play() -> None:
        begun, goes_on = asyncio.Event(), asyncio.Event()

        async def slow(request: Request) -> AsyncGenerator[Event, None]:
            begun.set()
            await goes_on.wait()
            yield Step("re " + request.text)

        agent = Scripted(slow)
        async with running_gateway(where, agent) as node:
            await node.app.get("one")
            await asyncio.wait_for(begun.wait(), PATIENCE)
            await node.app.get("two")
            node.gateway.stop()
            await asyncio.sleep(0.1)
            goes_on.set()
            await node.running
            assert node.app.to(ANA) == ["re one"]
            assert agent.is_closed
        async with running_gateway(where, Echo()) as node:
            await node.quiet()
            assert node.app.to(ANA) == ["re two"]

    asyncio.run(play())


def test_a_turn_that_is_cut_off_goes_on_with_the_next_start(where: str) -> None:
    async def play() -> None:
        begun = asyncio.Event()

        async def endless(request: Request) -> AsyncGenerator[Event, None]:
            yield Step(None, (CALL,))
            begun.set()
            await asyncio.Event().wait()

        long = msgspec.structs.replace(FAST, lease_seconds=600)
        async with running_gateway(
            where, Scripted(endless), rules=rules(drain_seconds=0.1), settings=long
        ) as node:
            await node.app.get("one")
            await asyncio.wait_for(begun.wait(), PATIENCE)
        agent = Echo()
        async with running_gateway(where, agent, settings=long) as node:
            await node.quiet()  # at once: nobody waits for a claim to run out
            assert node.app.to(ANA) == ["re one"]
            assert [m["role"] for m in agent.histories[0]] == ["user", "assistant", "tool"]
            assert (await node.told()).count("one") == 1

    asyncio.run(play())


def test_a_part_that_fails_ends_the_gateway_loudly(tmp_path: Path) -> None:
    async def play() -> None:
        async with aio.open(str(tmp_path / "talk.db"), settings=Settings(zone="UTC")) as store:
            gateway = Gateway(store, Echo(), [App()])

            async def broken() -> None:
                raise KeyError("a bug in the watcher")

            setattr(gateway.watcher, "run", broken)  # noqa: B010 — a method is replaced
            with pytest.raises(KeyError, match="a bug in the watcher"):
                await asyncio.wait_for(gateway.run(), PATIENCE)

    asyncio.run(play())
