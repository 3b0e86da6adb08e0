"""Session expiry: an expired session is ended once, announced once, and flushed."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec
import pytest

import tertulia
from tertulia import Source, aio
from tertulia.core.session import Session
from tertulia.errors import AgentUnavailable
from tertulia.gateway import replies
from tertulia.gateway.expiry import ExpiryWatcher
from tertulia.testing import FakeClock
from tests.gateway.running_gateway import ANA, FAST, App, Echo, rules, running_gateway
from tests.records.store_inspection import execute

REMEMBERING = msgspec.structs.replace(FAST, remember=True)
NOTICE = (
    "This is a new conversation, because you had not written for a while."
    " To continue the last one, send /resume 1."
)


# -- ending and announcing


def test_expired_session_is_ended_once_and_announced_once(where: str) -> None:
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
            assert await node.hears("/resume 1") == f"Continuing with {first.id}."
            assert await node.told() == ["one", "re one"]
            assert other.running.done() is False

    asyncio.run(play())


def test_interrupted_message_is_answered_after_its_session_expired(where: str) -> None:
    """A node was killed in the night; the watcher of another ends the session before the retry."""

    async def play() -> None:
        clock = FakeClock()
        first = await _interrupted_turn(where, clock)
        clock.forward(days=3)
        with tertulia.open(where, settings=FAST, clock=clock) as store:
            assert store.sessions.expire(first.id) is not None
        async with running_gateway(where, Echo(), clock=clock) as node:
            await node.quiet()
            assert node.app.to(ANA) == [NOTICE, "re one"]
            assert await node.told() == ["one", "re one"]

    asyncio.run(play())


def test_interrupted_message_of_an_older_session_is_reported(where: str) -> None:
    async def play() -> None:
        clock = FakeClock()
        first = await _interrupted_turn(where, clock)
        with tertulia.open(where, settings=FAST, clock=clock) as store:
            store.sessions.reset(first.key)
        async with running_gateway(where, Echo(), clock=clock) as node:
            await node.quiet()
            assert node.app.to(ANA) == [replies.CUT_OFF]
            assert await node.say("one") == ["re one"]

    asyncio.run(play())


async def _interrupted_turn(where: str, clock: FakeClock) -> Session:
    """A message was accepted and taken, and its turn begun; then the node was gone."""
    async with aio.open(where, settings=FAST, clock=clock) as store:
        await store.inbox.put(ANA, "one", message_id="1")
        (item,) = await store.inbox.claim()
        turn = store.sync.turn_control(ANA, "one", message_id="1")
        assert turn.try_enter()
        turn.leave(failed=True)
        await store.inbox.failed(item, "killed")
        return turn.session


async def _has_ended(store: aio.Store, session_id: str) -> bool:
    return (await store.sessions.require(session_id)).ended_at is not None


def test_message_before_the_watcher_expires_the_session_too(where: str) -> None:
    async def play() -> None:
        clock = FakeClock()
        async with running_gateway(where, Echo(), clock=clock) as node:
            await node.hears("one")
            clock.forward(days=3)
            assert await node.say("two") == [NOTICE, "re two"]
            assert await node.say("three") == ["re three"]

    asyncio.run(play())


def test_api_gets_no_notice(where: str) -> None:
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


def test_notice_survives_a_node_that_died_in_the_turn(where: str) -> None:
    async def play() -> None:
        clock = FakeClock()
        async with running_gateway(where, Echo(), clock=clock) as node:
            await node.hears("one")
        clock.forward(days=3)
        async with aio.open(where, settings=FAST, clock=clock) as store:
            await store.inbox.put(ANA, "two", message_id="2")
            (item,) = await store.inbox.claim()
            with contextlib.suppress(ZeroDivisionError):
                async with store.turn(ANA, "two", message_id="2") as turn:
                    assert turn.notice is not None  # handed out, and then the node is lost
                    raise ZeroDivisionError
            await store.inbox.failed(item, "lost")
        async with running_gateway(where, Echo(), clock=clock) as node:
            await node.quiet()
            assert node.app.to(ANA) == [NOTICE, "re two"]
            assert await node.say("three") == ["re three"]

    asyncio.run(play())


# -- flushing memories


@pytest.mark.parametrize("problem", [AgentUnavailable("Away."), KeyError("a bug")])
def test_flush_is_tried_three_times_at_most(where: str, problem: Exception) -> None:
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
            assert await watcher.expire_sessions() == 1
            assert await watcher.expire_sessions() == 0
            for _ in range(5):
                assert await watcher.flush_memories() == 0
                execute(store.sync, "update flushes set lease_until = 0")
            assert tries == 3
            told = await store.sessions.explain(turn.session.id)
            assert told.count("memory: outcome given up") == 1

    asyncio.run(play())


def test_nothing_is_flushed_if_not_configured(where: str) -> None:
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
            assert (await watcher.expire_sessions(), await watcher.flush_memories(), asked) == (
                1,
                0,
                [],
            )

    asyncio.run(play())
