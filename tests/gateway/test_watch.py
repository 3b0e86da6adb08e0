"""What is over is ended once, said once, and remembered."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path

import msgspec
import pytest

import tertulia
from tertulia import Source, aio
from tertulia.agents.base import Event, Request, Step
from tertulia.agents.parrot import ParrotAgent
from tertulia.core.session import Session
from tertulia.core.usage import Usage
from tertulia.errors import AgentFailed, AgentUnavailable
from tertulia.gateway import replies
from tertulia.gateway.expiry import ExpiryWatcher
from tertulia.gateway.memory_files import FileMemory
from tertulia.gateway.memory_flush import (
    NOTHING,
    QUESTION,
    MemoryFlush,
)
from tertulia.testing import FakeClock
from tests.gateway.scene import ANA, BEN, FAST, App, Echo, Scripted, rules, running_gateway
from tests.records.store_inspection import execute

REMEMBERING = msgspec.structs.replace(FAST, remember=True)
NOTICE = (
    "This is a new conversation: you had not written for a while."
    " To go on with the last one, say /resume 1."
)


# -- ending, and saying so


def test_what_is_over_is_ended_once_and_said_once(where: str) -> None:
    async def play() -> None:
        clock = FakeClock()
        quick = rules(watch_seconds=0.05)
        async with (
            running_gateway(where, Echo(), clock=clock, rules=quick) as node,
            running_gateway(where, Echo(), clock=clock, rules=quick, apps=[App("signal")]) as other,
        ):
            await node.hears("one")
            first = await node.session()
            clock.forward(days=3)
            await node.until(lambda: _has_ended(node.store, first.id), "it is ended")
            told = await node.store.sessions.explain(first.id)
            assert told.count("ended: ") == 1, told
            assert await node.say("two") == [NOTICE, "re two"]
            assert await node.say("three") == ["re three"]
            assert await node.hears("/resume 1") == f"We go on with {first.id}."
            assert await node.told() == ["one", "re one"]
            assert other.running.done() is False

    asyncio.run(play())


def test_what_was_cut_off_is_answered_though_its_session_is_over(where: str) -> None:
    """A node was killed in the night; the watcher of another ends the session before the retry."""

    async def play() -> None:
        clock = FakeClock()
        first = await _cut_off(where, clock)
        clock.forward(days=3)
        with tertulia.open(where, settings=FAST, clock=clock) as store:
            assert store.sessions.expire(first.id) is not None
        async with running_gateway(where, Echo(), clock=clock) as node:
            await node.quiet()
            assert node.app.to(ANA) == [NOTICE, "re one"]
            assert await node.told() == ["one", "re one"]

    asyncio.run(play())


def test_what_was_cut_off_and_overtaken_is_not_passed_over(where: str) -> None:
    async def play() -> None:
        clock = FakeClock()
        first = await _cut_off(where, clock)
        with tertulia.open(where, settings=FAST, clock=clock) as store:
            store.sessions.reset(first.key)
        async with running_gateway(where, Echo(), clock=clock) as node:
            await node.quiet()
            assert node.app.to(ANA) == [replies.CUT_OFF]
            assert await node.say("one") == ["re one"]

    asyncio.run(play())


async def _cut_off(where: str, clock: FakeClock) -> Session:
    """A message was accepted and taken, and its turn begun; then the node was gone."""
    async with aio.open(where, settings=FAST, clock=clock) as store:
        await store.inbox.put(ANA, "one", message_id="1")
        (arrival,) = await store.inbox.claim()
        turn = store.sync.turn_control(ANA, "one", message_id="1")
        assert turn.try_enter()
        turn.leave(failed=True)
        await store.inbox.failed(arrival, "killed")
        return turn.session


async def _has_ended(store: aio.Store, session_id: str) -> bool:
    return (await store.sessions.require(session_id)).ended_at is not None


def test_a_message_that_comes_before_the_watcher_is_the_same(where: str) -> None:
    async def play() -> None:
        clock = FakeClock()
        async with running_gateway(where, Echo(), clock=clock) as node:
            await node.hears("one")
            clock.forward(days=3)
            assert await node.say("two") == [NOTICE, "re two"]
            assert await node.say("three") == ["re three"]

    asyncio.run(play())


def test_an_api_is_not_told(where: str) -> None:
    async def play() -> None:
        client = Source("api", "1", user_id="1")
        clock = FakeClock()
        everybody = rules(platforms={"api": rules().platforms["telegram"]})
        async with running_gateway(
            where, Echo(), clock=clock, apps=[App("api")], rules=everybody
        ) as node:
            await node.hears("one", client)
            clock.forward(days=3)
            assert await node.say("two", client) == ["re two"]

    asyncio.run(play())


def test_the_notice_survives_a_node_that_was_lost_after_entering(where: str) -> None:
    async def play() -> None:
        clock = FakeClock()
        async with running_gateway(where, Echo(), clock=clock) as node:
            await node.hears("one")
        clock.forward(days=3)
        async with aio.open(where, settings=FAST, clock=clock) as store:
            await store.inbox.put(ANA, "two", message_id="2")
            (arrival,) = await store.inbox.claim()
            with contextlib.suppress(ZeroDivisionError):
                async with store.turn(ANA, "two", message_id="2") as turn:
                    assert turn.notice is not None  # handed out, and then the node is lost
                    raise ZeroDivisionError
            await store.inbox.failed(arrival, "lost")
        async with running_gateway(where, Echo(), clock=clock) as node:
            await node.quiet()
            assert node.app.to(ANA) == [NOTICE, "re two"]
            assert await node.say("three") == ["re three"]

    asyncio.run(play())


# -- remembering


def test_what_ended_by_itself_is_remembered_once(where: str, tmp_path: Path) -> None:
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
                await node.until(lambda: _remembered(beside, first), "the watcher remembers")
                assert seen == [["I sail", "re I sail", QUESTION]]
                # One that a message ended is remembered too.
                await node.hears("I cook", BEN)
                second = await node.session(BEN)
                clock.forward(days=3)
                await node.say("hello", BEN)
                await node.until(lambda: _remembered(beside, second), "that one too")
                await asyncio.sleep(0.3)
                assert len(seen) == 2
                assert memory.read().count("- Ana sails.") == 2
                # Nothing of it is a part of what was said; what it cost is known.
                told = await node.store.transcript(first.id).load()
                assert [m["content"] for m in told] == ["I sail", "re I sail"]
                assert (await node.store.sessions.require(first.id)).usage.input == 110

    asyncio.run(play())


async def _remembered(store: aio.Store, session: Session) -> bool:
    return "memory: outcome saved" in await store.sessions.explain(session.id)


@pytest.mark.parametrize("problem", [AgentUnavailable("Away."), KeyError("a bug")])
def test_it_is_tried_three_times_at_most(where: str, problem: Exception) -> None:
    async def play() -> None:
        clock = FakeClock()
        tries = 0

        async def fails(session: Session) -> None:
            nonlocal tries
            tries += 1
            raise problem

        async with aio.open(where, settings=REMEMBERING, clock=clock) as store:
            async with store.turn(ANA, "hello") as turn:
                await turn.add_assistant("hi")
            clock.forward(days=3)
            watcher = ExpiryWatcher(store, every=1, flush=fails)
            assert await watcher.look() == 1
            assert await watcher.look() == 0
            for _ in range(5):
                assert await watcher.remember() == 0
                execute(store.sync, "update flushes set lease_until = 0")
            assert tries == 3
            told = await store.sessions.explain(turn.session.id)
            assert told.count("memory: outcome given up") == 1

    asyncio.run(play())


def test_nothing_is_remembered_where_nobody_asked_for_it(where: str) -> None:
    async def play() -> None:
        clock = FakeClock()
        asked: list[Session] = []

        async def flush(session: Session) -> None:
            asked.append(session)

        async with aio.open(where, settings=FAST, clock=clock) as store:
            async with store.turn(ANA, "hello") as turn:
                await turn.add_assistant("hi")
            clock.forward(days=3)
            watcher = ExpiryWatcher(store, every=1, flush=flush)
            assert (await watcher.look(), await watcher.remember(), asked) == (1, 0, [])

    asyncio.run(play())


@pytest.mark.parametrize("answer", [NOTHING, "nothing.", "", None, "   "])
def test_nothing_worth_keeping_is_not_kept(tmp_path: Path, answer: str | None) -> None:
    async def play() -> None:
        async def script(request: Request) -> AsyncGenerator[Event, None]:
            yield Step(answer)

        memory = FileMemory(tmp_path / "memory")
        async with aio.open(str(tmp_path / "talk.db"), settings=FAST) as store:
            session = await store.sessions.open(ANA)
            await MemoryFlush(store, Scripted(script), memory)(session)
        assert memory.read() == ""

    asyncio.run(play())


def test_an_agent_that_takes_too_long_or_fails_saves_nothing(tmp_path: Path) -> None:
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


def test_any_agent_will_do(tmp_path: Path) -> None:
    async def play() -> None:
        memory = FileMemory(tmp_path / "memory")
        async with aio.open(str(tmp_path / "talk.db"), settings=FAST) as store:
            async with store.turn(ANA, "I sail") as turn:
                await turn.add_assistant("Good.")
            await MemoryFlush(store, ParrotAgent(), memory)(turn.session)
        assert "- user: I sail" in memory.read()

    asyncio.run(play())
