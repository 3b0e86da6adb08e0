"""From the outbox to a platform: in order, tried again, given up, or unknown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tertulia import Source
from tertulia.core.backoff import Backoff
from tertulia.errors import (
    OutcomeUnknown,
    PlatformUnavailable,
    RateLimited,
    Refused,
    StoreUnavailable,
    TooLarge,
)
from tertulia.platforms.base import Outgoing
from tertulia.records.queues.outbox import Delivery
from tests.gateway.running_gateway import (
    ANA,
    BEN,
    CARA,
    PATIENCE,
    App,
    Echo,
    RunningGateway,
    rules,
    running_gateway,
)


def failing(*problems: Exception) -> Callable[[Outgoing], Any]:
    """Raises these, one at each call, and then none."""
    left = list(problems)

    async def send(message: Outgoing) -> None:
        if left:
            raise left.pop(0)

    return send


async def deliveries(node: RunningGateway) -> list[Delivery]:
    return list((await node.store.outbox.find(limit=1000)).items)


def test_long_answer_is_sent_in_parts_and_in_order(where: str) -> None:
    async def play() -> None:
        async with running_gateway(where, Echo()) as node:
            text = "\n".join(f"line {number}" for number in range(2000))
            heard = await node.say(text)
            assert len(heard) > 3
            assert all(len(part) <= 4096 for part in heard)
            assert "\n".join(heard).split() == f"re {text}".split()

    asyncio.run(play())


def test_order_in_a_chat_is_kept_when_a_send_fails(where: str) -> None:
    async def play() -> None:
        async with running_gateway(where, Echo()) as node:
            node.app.on_send = failing(RateLimited("Slow down.", retry_after=0.2))
            for text in ("one", "two", "three"):
                await node.app.get(text)
            await node.app.get("other", BEN)
            await node.quiet()
            assert node.app.to(ANA) == ["re one", "re two", "re three"]
            assert node.app.to(BEN) == ["re other"]
            assert {delivery.state for delivery in await deliveries(node)} == {"sent"}

    asyncio.run(play())


def test_retry_after_of_the_platform_is_respected(where: str) -> None:
    async def play() -> None:
        async with running_gateway(where, Echo()) as node:
            node.app.on_send = failing(RateLimited("Slow down.", retry_after=3600))
            await node.app.get("one")
            await node.until(lambda: _has(node, "waiting", attempts=1), "it waits")
            (delivery,) = await deliveries(node)
            assert delivery.not_before is not None
            assert delivery.created_at is not None
            assert (delivery.not_before - delivery.created_at).total_seconds() > 3500
            assert delivery.problem == "Slow down."

    asyncio.run(play())


async def _has(node: RunningGateway, state: str, *, attempts: int = 0) -> bool:
    return any(one.state == state and one.attempts >= attempts for one in await deliveries(node))


def test_unavailable_platform_gets_the_delivery_later(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tertulia.gateway.retries.SEND_BACKOFF", Backoff(first=0.05, longest=0.05))

    async def play() -> None:
        async with running_gateway(where, Echo()) as node:
            node.app.on_send = failing(PlatformUnavailable("Away."))
            assert await node.say("one") == ["re one"]
            (delivery,) = await deliveries(node)
            assert (delivery.state, delivery.attempts) == ("sent", 2)

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
def test_final_outcome_is_stored_and_not_sent_again(
    where: str, problem: Exception, state: str
) -> None:
    async def play() -> None:
        async with running_gateway(where, Echo()) as node:
            node.app.on_send = failing(problem)
            assert await node.say("one") == []
            assert await node.say("two") == ["re two"]  # the next one is not held up
            first, second = await deliveries(node)
            assert (first.state, first.attempts, second.state) == (state, 1, "sent")
            assert first.problem
            if isinstance(problem, ValueError):
                # The text of a library may have a secret in it: it is in the log alone.
                assert first.problem == "The adapter failed: ValueError."

    asyncio.run(play())


def test_unknown_outcome_is_sent_again_while_the_platform_remembers_its_key(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tertulia.gateway.retries.SEND_BACKOFF", Backoff(first=0.05, longest=0.05))

    async def play() -> None:
        app = App(is_idempotent=True)
        async with running_gateway(where, Echo(), apps=[app]) as node:
            app.on_send = failing(OutcomeUnknown("No answer came."))
            assert await node.say("one") == ["re one"]
            (delivery,) = await deliveries(node)
            assert (delivery.state, delivery.attempts) == ("sent", 2)
        other = App("signal")
        other.idempotent_seconds = 0.000001
        async with running_gateway(where, Echo(), apps=[other]) as node:
            other.on_send = failing(OutcomeUnknown("No answer came."))
            assert await node.say("two", CARA) == []
            assert [delivery.state for delivery in await deliveries(node)] == ["sent", "unknown"]

    asyncio.run(play())


def test_delivery_is_given_up_after_the_configured_tries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tertulia.gateway.retries.SEND_BACKOFF", Backoff(first=0.01, longest=0.01))

    async def play() -> None:
        async with running_gateway(str(tmp_path / "talk.db"), Echo(), rules=rules(sends=3)) as node:
            node.app.on_send = failing(*[PlatformUnavailable("Not now.")] * 9)
            assert await node.say("one") == []
            (delivery,) = await deliveries(node)
            assert (delivery.state, delivery.attempts) == ("dead", 3)

    asyncio.run(play())


def test_pause_that_the_platform_asks_for_uses_up_no_tries(where: str) -> None:
    async def play() -> None:
        async with running_gateway(where, Echo(), rules=rules(sends=2)) as node:
            node.app.on_send = failing(*[RateLimited("Slow down.", retry_after=0.01)] * 9)
            assert await node.say("one") == ["re one"]
            (delivery,) = await deliveries(node)
            assert (delivery.state, delivery.attempts, delivery.tries) == ("sent", 10, 1)

    asyncio.run(play())


def test_hanging_platform_does_not_delay_others(where: str) -> None:
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


def test_delivery_waits_for_a_node_with_its_adapter(where: str) -> None:
    async def play() -> None:
        async with running_gateway(where, Echo()) as node:
            await node.store.outbox.put("hello", "signal:77")
            assert await node.hears("one") == "re one"
            assert await _has(node, "waiting")
        async with running_gateway(where, Echo(), apps=[App("signal")]) as node:
            await node.quiet()
            assert [message.text for message in node.app.sent] == ["hello"]

    asyncio.run(play())


def test_send_in_progress_is_finished_when_the_gateway_stops(where: str) -> None:
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
            assert [one.state for one in await deliveries(node)] == ["sent"]

    asyncio.run(play())


def test_cancelled_send_has_an_unknown_outcome(where: str) -> None:
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
            (delivery,) = await deliveries(node)
            assert delivery.state == "unknown"
            assert delivery.problem == "The gateway stopped while this was being sent."

    asyncio.run(play())


def test_outcome_is_stored_when_the_database_is_back(where: str) -> None:
    async def play() -> None:
        async with running_gateway(where, Echo()) as node:
            done, away = node.store.outbox.done, [StoreUnavailable("Locked.")] * 2

            async def settle(delivery: Delivery, message_id: str | None) -> Delivery:
                if away:
                    raise away.pop()
                return await done(delivery, message_id=message_id)

            setattr(node.store.outbox, "done", settle)  # noqa: B010 — a method is replaced
            assert await node.say("one") == ["re one"]
            assert [one.state for one in await deliveries(node)] == ["sent"]

    asyncio.run(play())
