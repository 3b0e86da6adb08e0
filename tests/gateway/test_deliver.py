"""From the outbox to a platform: in order, tried again, given up, or not known."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tertulia import Source
from tertulia.errors import (
    OutcomeUnknown,
    PlatformUnavailable,
    RateLimited,
    Refused,
    StoreUnavailable,
    TooLarge,
)
from tertulia.platforms.base import Outgoing, Receive
from tertulia.records.queues.outbox import Delivery
from tests.gateway.scene import ANA, BEN, PATIENCE, App, Echo, House, rules, running_gateway


def failing(*problems: Exception) -> Callable[[Outgoing], Any]:
    """Raises these, one at each call, and then none."""
    left = list(problems)

    async def send(message: Outgoing) -> None:
        if left:
            raise left.pop(0)

    return send


async def parcels(node: House) -> list[Delivery]:
    return list((await node.store.outbox.find(limit=1000)).items)


def test_a_long_answer_comes_in_parts_and_in_order(where: str) -> None:
    async def play() -> None:
        async with running_gateway(where, Echo()) as node:
            text = "\n".join(f"line {number}" for number in range(2000))
            heard = await node.say(text)
            assert len(heard) > 3
            assert all(len(part) <= 4096 for part in heard)
            assert "\n".join(heard).split() == f"re {text}".split()

    asyncio.run(play())


def test_order_per_chat_holds_where_a_send_fails(where: str) -> None:
    async def play() -> None:
        async with running_gateway(where, Echo()) as node:
            node.app.on_send = failing(RateLimited("Slow down.", retry_after=0.2))
            for text in ("one", "two", "three"):
                await node.app.get(text)
            await node.app.get("other", BEN)
            await node.quiet()
            assert node.app.to(ANA) == ["re one", "re two", "re three"]
            assert node.app.to(BEN) == ["re other"]
            assert {parcel.state for parcel in await parcels(node)} == {"sent"}

    asyncio.run(play())


def test_a_pause_that_the_platform_asks_for_is_kept(where: str) -> None:
    async def play() -> None:
        async with running_gateway(where, Echo()) as node:
            node.app.on_send = failing(RateLimited("Slow down.", retry_after=3600))
            await node.app.get("one")
            await node.until(lambda: _has(node, "waiting", attempts=1), "it waits")
            (parcel,) = await parcels(node)
            assert parcel.not_before is not None
            assert parcel.created_at is not None
            assert (parcel.not_before - parcel.created_at).total_seconds() > 3500
            assert parcel.problem == "Slow down."

    asyncio.run(play())


async def _has(node: House, state: str, *, attempts: int = 0) -> bool:
    return any(one.state == state and one.attempts >= attempts for one in await parcels(node))


def test_a_platform_that_is_away_gets_it_later(where: str) -> None:
    async def play() -> None:
        async with running_gateway(where, Echo()) as node:
            node.app.on_send = failing(PlatformUnavailable("Away."))
            assert await node.say("one") == ["re one"]
            (parcel,) = await parcels(node)
            assert (parcel.state, parcel.attempts) == ("sent", 2)

    asyncio.run(play())


@pytest.mark.parametrize(
    ("problem", "state"),
    [
        (Refused("The bot was blocked."), "dead"),
        (TooLarge("Too long."), "dead"),
        (OutcomeUnknown("No answer came."), "unknown"),
        (ValueError("a bug in the adapter"), "unknown"),
        (TimeoutError(), "unknown"),
    ],
)
def test_what_becomes_of_it_is_written_down_and_not_repeated(
    where: str, problem: Exception, state: str
) -> None:
    async def play() -> None:
        async with running_gateway(where, Echo()) as node:
            node.app.on_send = failing(problem)
            assert await node.say("one") == []
            assert await node.say("two") == ["re two"]  # the next one is not held up
            first, second = await parcels(node)
            assert (first.state, first.attempts, second.state) == (state, 1, "sent")
            assert first.problem
            if isinstance(problem, ValueError):
                assert "a bug in the adapter" in first.problem

    asyncio.run(play())


def test_it_is_given_up_after_so_many_tries(tmp_path: Path) -> None:
    async def play() -> None:
        async with running_gateway(str(tmp_path / "talk.db"), Echo(), rules=rules(sends=3)) as node:
            node.app.on_send = failing(*[RateLimited("Slow down.", retry_after=0.01)] * 9)
            assert await node.say("one") == []
            (parcel,) = await parcels(node)
            assert (parcel.state, parcel.attempts) == ("dead", 3)

    asyncio.run(play())


def test_a_platform_that_hangs_keeps_no_other_waiting(where: str) -> None:
    async def play() -> None:
        goes_on = asyncio.Event()

        async def hang(message: Outgoing) -> None:
            await goes_on.wait()

        async with running_gateway(where, Echo(), apps=[App(), App("signal")]) as node:
            node.app.on_send = hang
            for number in range(100):
                await node.store.outbox.put("hello", f"telegram:{number}")
            cara = Source("signal", "77", user_id="77")
            await node.apps["signal"].get("hello", cara)
            await node.until(lambda: node.apps["signal"].to(cara), "the other one is served")
            assert node.app.sent == []
            goes_on.set()
            await node.quiet()
            assert len(node.app.sent) == 100

    asyncio.run(play())


def test_where_there_is_no_adapter_it_waits_for_a_node_that_has_one(where: str) -> None:
    async def play() -> None:
        async with running_gateway(where, Echo()) as node:
            await node.store.outbox.put("hello", "signal:77")
            assert await node.hears("one") == "re one"
            assert await _has(node, "waiting")
        async with running_gateway(where, Echo(), apps=[App("signal")]) as node:
            await node.quiet()
            assert [message.text for message in node.app.sent] == ["hello"]

    asyncio.run(play())


def test_a_send_under_way_is_finished_when_the_gateway_stops(where: str) -> None:
    async def play() -> None:
        begun, goes_on = asyncio.Event(), asyncio.Event()

        async def slow(message: Outgoing) -> None:
            begun.set()
            await goes_on.wait()

        async with running_gateway(where, Echo()) as node:
            node.app.on_send = slow
            await node.app.get("one")
            await asyncio.wait_for(begun.wait(), PATIENCE)
            node.gateway.stop()
            await asyncio.sleep(0.1)
            goes_on.set()
            await node.running
            assert node.app.to(ANA) == ["re one"]
            assert [one.state for one in await parcels(node)] == ["sent"]

    asyncio.run(play())


def test_a_send_that_is_cut_off_is_not_known(where: str) -> None:
    async def play() -> None:
        begun = asyncio.Event()

        async def hang(message: Outgoing) -> None:
            begun.set()
            await asyncio.Event().wait()

        async with running_gateway(where, Echo(), rules=rules(drain_seconds=0.2)) as node:
            node.app.on_send = hang
            await node.app.get("one")
            await asyncio.wait_for(begun.wait(), PATIENCE)
            node.gateway.stop()
            await node.running
            (parcel,) = await parcels(node)
            assert parcel.state == "unknown"
            assert parcel.problem == "The gateway stopped while this was being sent."

    asyncio.run(play())


def test_what_was_sent_is_settled_when_the_database_is_back(where: str) -> None:
    async def play() -> None:
        async with running_gateway(where, Echo()) as node:
            done, away = node.store.outbox.done, [StoreUnavailable("Locked.")] * 2

            async def settle(parcel: Delivery) -> Delivery:
                if away:
                    raise away.pop()
                return await done(parcel)

            setattr(node.store.outbox, "done", settle)  # noqa: B010 — a method is replaced
            assert await node.say("one") == ["re one"]
            assert [one.state for one in await parcels(node)] == ["sent"]

    asyncio.run(play())


def test_an_adapter_with_bugs_ends_nobody(
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

    monkeypatch.setattr("tertulia.gateway.app._REST_SECONDS", 0.05)
    with caplog.at_level(logging.ERROR):
        asyncio.run(play())
    for bug in ("a bug in listen", "a bug in show", "a bug in close"):
        assert bug in caplog.text
