"""The pipeline under failures: the person is told plainly, and no message is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from tertulia import Source, aio
from tertulia.agents.base import Delta, Event, Request, Step
from tertulia.core.backoff import Backoff
from tertulia.core.budget import Budget
from tertulia.core.message import ToolCall
from tertulia.errors import StoreUnavailable
from tertulia.gateway.agent_table import AgentTable, ConfiguredAgent
from tertulia.platforms.base import Receive
from tests.gateway.running_gateway import (
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


def test_exceeded_budget_is_reported_before_the_agent_runs(where: str) -> None:
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


def test_gateway_bug_loses_no_message(
    where: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = Backoff(first=0.05, longest=0.05)
    monkeypatch.setattr("tertulia.gateway.pipeline.MESSAGE_BACKOFF", short)

    async def play() -> None:
        async with running_gateway(where, Echo()) as node:
            run_turn, bugs = node.gateway.pipeline._run_turn, [KeyError("a bug")]

            async def broken(*args: Any) -> None:
                if bugs:
                    raise bugs.pop()
                await run_turn(*args)

            setattr(node.gateway.pipeline, "_run_turn", broken)  # noqa: B010 — a method is replaced
            assert await node.say("one") == ["re one"]
            assert bugs == []

    with caplog.at_level(logging.ERROR):
        asyncio.run(play())
    assert "KeyError: 'a bug'" in caplog.text


def test_unanswerable_message_is_given_up_and_reported(tmp_path: Path) -> None:
    async def play() -> None:
        async with running_gateway(str(tmp_path / "talk.db"), Echo(), rules=rules(tries=1)) as node:

            async def broken(*args: object) -> None:
                raise KeyError("a bug")

            setattr(node.gateway.pipeline, "_run_turn", broken)  # noqa: B010 — a method is replaced
            (told,) = await node.say("one")
            assert "given up" in told
            (item,) = (await node.store.inbox.find()).items
            assert (item.state, item.problem) == ("dead", "The gateway has a bug.")

    asyncio.run(play())


def test_message_that_kills_every_node_is_given_up(tmp_path: Path) -> None:
    async def play() -> None:
        where = str(tmp_path / "talk.db")
        async with aio.open(where, settings=FAST) as store:
            await store.inbox.put(ANA, "deadly", message_id="1")
            for _ in range(9):
                (item,) = await store.inbox.claim()
                await store.inbox.failed(item, "killed")
        agent = Echo()
        async with running_gateway(where, agent, rules=rules(tries=2)) as node:
            await node.quiet()
            assert "given up" in node.app.to(ANA)[0]
            assert agent.asked == []

    asyncio.run(play())


# -- adapters


def test_adapter_with_bugs_does_not_end_the_others(
    where: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(App):
        listened = 0

        async def listen(self, receive: Receive) -> None:
            self.listened += 1
            if self.listened < 3:
                raise KeyError("a bug in listen")
            await super().listen(receive)

        async def show(self, source: Source, shown: object) -> None:
            raise ValueError("a bug in show")

        async def close(self) -> None:
            raise ValueError("a bug in close")

    async def play() -> None:
        broken = Broken("signal")
        cara = Source("signal", "77", user_id="77")
        async with running_gateway(where, Echo(), apps=[App(), broken]) as node:
            assert await node.say("one") == ["re one"]
            assert await node.say("two", cara) == ["re two"]
        assert node.app.is_closed

    monkeypatch.setattr(
        "tertulia.gateway.retries.LISTEN_BACKOFF", Backoff(first=0.05, longest=0.05)
    )
    with caplog.at_level(logging.ERROR):
        asyncio.run(play())
    for bug in ("a bug in listen", "a bug in show", "a bug in close"):
        assert bug in caplog.text


# -- the store is not available


def _lock_database(where: str) -> apsw.Connection:
    """Another program that has the file; it waits for whoever writes, such as the indexer."""
    connection = apsw.Connection(where)
    connection.set_busy_timeout(round(PATIENCE * 1000))
    connection.execute("begin immediate")
    return connection


@pytest.mark.check
def test_locked_database_loses_no_message(tmp_path: Path) -> None:
    async def play() -> None:
        where = str(tmp_path / "talk.db")
        # What could not be settled while it was locked is taken again when its claim has run out.
        short = msgspec.structs.replace(FAST, busy_seconds=0.2, lease_seconds=5)
        async with running_gateway(where, Echo(), settings=short) as node:
            assert await node.say("one") == ["re one"]
            other = _lock_database(where)
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

            node.gateway.pipeline.agents = AgentTable([ConfiguredAgent("main", Scripted(slow))])
            await node.app.get("three")
            await node.until(lambda: len(node.gateway.pipeline.interrupts) > 0, "it is under way")
            other = _lock_database(where)
            goes_on.set()
            await asyncio.sleep(1)
            other.execute("rollback")
            other.close()
            await node.quiet()
            assert node.app.to(ANA)[2:] == ["re three"]

    asyncio.run(play())


@pytest.mark.check
def test_database_restart_loses_no_message() -> None:
    async def play(where: str, restart: Any) -> None:
        async with running_gateway(where, Echo()) as node:
            assert await node.say("one") == ["re one"]
            goes_on = asyncio.Event()

            async def slow(request: Request) -> AsyncGenerator[Event, None]:
                await goes_on.wait()
                yield Step("re " + request.text)

            node.gateway.pipeline.agents = AgentTable([ConfiguredAgent("main", Scripted(slow))])
            await node.app.get("two")
            await node.until(lambda: len(node.gateway.pipeline.interrupts) > 0, "it is under way")
            await asyncio.to_thread(restart)
            goes_on.set()
            await node.until(lambda: len(node.app.to(ANA)) > 1, "it is answered")
            await node.until(node._is_quiet, "all is quiet")
            assert node.app.to(ANA) == ["re one", "re two"]

    with server() as running:
        asyncio.run(play(running.database(), running.restart))
