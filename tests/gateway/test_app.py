"""A gateway that stops: turns in progress are finished, and the rest stays stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import msgspec
import pytest

from tertulia import Settings, aio
from tertulia.agents.base import Event, Request, Step
from tertulia.core.message import ToolCall
from tertulia.gateway.app import Gateway
from tests.gateway.running_gateway import (
    ANA,
    FAST,
    PATIENCE,
    App,
    Echo,
    Scripted,
    rules,
    running_gateway,
)

CALL = ToolCall("c1", "look", {})


def test_stop_finishes_turns_in_progress_and_leaves_waiting_messages(where: str) -> None:
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


def test_cancelled_turn_continues_with_the_next_start(where: str) -> None:
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


def test_failing_loop_ends_the_gateway_with_its_error(tmp_path: Path) -> None:
    async def play() -> None:
        async with aio.open(str(tmp_path / "talk.db"), settings=Settings(zone="UTC")) as store:
            gateway = Gateway(store, Echo(), [App()])

            async def broken() -> None:
                raise KeyError("a bug in the watcher")

            setattr(gateway.expiry_watcher, "run", broken)  # noqa: B010 — a method is replaced
            with pytest.raises(KeyError, match="a bug in the watcher"):
                await asyncio.wait_for(gateway.run(), PATIENCE)

    asyncio.run(play())
