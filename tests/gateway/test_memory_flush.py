"""The memory flush: what should be remembered of an ended session is saved once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import msgspec
import pytest

from tertulia import aio
from tertulia.agents.base import Event, Request, Step
from tertulia.agents.parrot import ParrotAgent
from tertulia.core.session import Session
from tertulia.core.usage import Usage
from tertulia.errors import AgentFailed
from tertulia.gateway.memory_files import FileMemory
from tertulia.gateway.memory_flush import NOTHING, QUESTION, MemoryFlush
from tertulia.testing import FakeClock
from tests.gateway.running_gateway import ANA, BEN, FAST, Scripted, rules, running_gateway

REMEMBERING = msgspec.structs.replace(FAST, remember=True)


def test_expired_session_is_flushed_once(where: str, tmp_path: Path) -> None:
    async def play() -> None:
        clock = FakeClock()
        seen: list[list[str]] = []

        async def script(request: Request) -> AsyncGenerator[Event, None]:
            if request.text == QUESTION:
                assert request.tools == ()
                seen.append([str(m["content"]) for m in await request.history()])
                yield Step("- Ana sails.", usage=Usage(100, 5, model="echo"))
            else:
                yield Step(f"re {request.text}", usage=Usage(10, 2, model="echo"))

        memory = FileMemory(tmp_path / "memory")
        async with aio.open(where, settings=REMEMBERING, clock=clock) as beside:
            flush = MemoryFlush(beside, Scripted(script), memory)
            async with running_gateway(
                where, Scripted(script), settings=REMEMBERING, clock=clock, flush=flush,
                rules=rules(watch_seconds=0.05),
            ) as node:  # fmt: skip
                await node.hears("I sail")
                first = await node.session()
                clock.forward(days=3)
                await node.until(lambda: _is_flushed(beside, first), "the watcher remembers")
                assert seen == [["I sail", "re I sail", QUESTION]]
                # One that a message ended is remembered too.
                await node.hears("I cook", BEN)
                second = await node.session(BEN)
                clock.forward(days=3)
                await node.say("hello", BEN)
                await node.until(lambda: _is_flushed(beside, second), "that one too")
                await asyncio.sleep(0.3)
                assert len(seen) == 2
                assert memory.read().count("- Ana sails.") == 2
                # Nothing of it is a part of what was said; what it cost is known.
                told = await node.store.transcript(first.id).load()
                assert [m["content"] for m in told] == ["I sail", "re I sail"]
                assert (await node.store.sessions.require(first.id)).usage.input == 110

    asyncio.run(play())


async def _is_flushed(store: aio.Store, session: Session) -> bool:
    return "memory: outcome saved" in await store.sessions.explain(session.id)


@pytest.mark.parametrize("answer", [NOTHING, "nothing.", "", None, "   "])
def test_answer_nothing_is_not_stored(tmp_path: Path, answer: str | None) -> None:
    async def play() -> None:
        async def script(request: Request) -> AsyncGenerator[Event, None]:
            yield Step(answer)

        memory = FileMemory(tmp_path / "memory")
        async with aio.open(str(tmp_path / "talk.db"), settings=FAST) as store:
            session = await store.sessions.open(ANA)
            await MemoryFlush(store, Scripted(script), memory)(session)
        assert memory.read() == ""

    asyncio.run(play())


def test_slow_or_failing_agent_saves_nothing(tmp_path: Path) -> None:
    async def play() -> None:
        async def endless(request: Request) -> AsyncGenerator[Event, None]:
            yield Step(None, ())
            await asyncio.Event().wait()

        async def broken(request: Request) -> AsyncGenerator[Event, None]:
            yield Step("half")
            raise KeyError("a bug")

        memory = FileMemory(tmp_path / "memory")
        async with aio.open(str(tmp_path / "talk.db"), settings=FAST) as store:
            session = await store.sessions.open(ANA)
            for script in (endless, broken):
                with pytest.raises(AgentFailed):
                    await MemoryFlush(store, Scripted(script), memory, seconds=0.2)(session)
        assert memory.read() == ""

    asyncio.run(play())


def test_parrot_agent_can_flush(tmp_path: Path) -> None:
    async def play() -> None:
        memory = FileMemory(tmp_path / "memory")
        async with aio.open(str(tmp_path / "talk.db"), settings=FAST) as store:
            async with store.turn(ANA, "I sail") as turn:
                await turn.add_assistant("Good.")
            await MemoryFlush(store, ParrotAgent(), memory)(turn.session)
        assert "- user: I sail" in memory.read()

    asyncio.run(play())
