"""Restarts of the gateway and of the homeserver, old events, and two nodes with one account."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from tertulia.core.backoff import Backoff
from tertulia.gateway import listening
from tertulia.platforms.matrix import adapter as matrix
from tests.matrix.matrix_gateway import matrix_gateway
from tests.matrix.people import people, wait_for
from tests.servers.http_proxy import HttpProxy
from tests.servers.postgres import Server
from tests.servers.synapse import Synapse, own_synapse

pytestmark = pytest.mark.check


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reconnect at once: a test must not wait for the pauses of production."""
    monkeypatch.setattr(matrix, "_RECONNECT", Backoff(first=0.2, longest=0.5))


def test_messages_of_a_long_downtime_are_answered_in_order(
    synapse: Synapse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The homeserver leaves out the middle of what happened meanwhile.
    monkeypatch.setattr(matrix, "_TIMELINE_EVENTS", 3)
    monkeypatch.setattr(matrix, "_PAGE_EVENTS", 4)
    where = str(tmp_path / "talk.db")

    async def run() -> None:
        async with (
            people(synapse, "ana", "agent") as (ana, agent),
            HttpProxy(synapse.base_url) as proxy,
        ):
            room = await ana.create_room(agent)
            async with matrix_gateway(where, proxy.base_url, agent) as node:
                await ana.wait_for_member(room, agent.id)
                await ana.send(room, "before")
                await ana.wait_for_texts(room, agent.id, 1)
                await node.wait_until_quiet()
            numbers = [str(number) for number in range(18)]
            for number in numbers:
                await ana.send(room, number)
            async with matrix_gateway(where, proxy.base_url, agent):
                texts = await ana.wait_for_texts(room, agent.id, len(numbers) + 1)
                assert texts == ["re before", *(f"re {number}" for number in numbers)]
            assert len(proxy.sent("/messages$")) > 2, "there was no gap"

    asyncio.run(run())


async def _old_messages(synapse: Synapse, where: str, count: int) -> None:
    async with (
        people(synapse, "ana", "agent") as (ana, agent),
        HttpProxy(synapse.base_url) as proxy,
    ):
        rooms = [await ana.create_room(agent) for _ in range(4)]
        for room in rooms:
            await agent.join(room)

        async def write(room: str) -> None:
            for number in range(count // len(rooms)):
                await ana.send(room, f"old {number}")

        await asyncio.gather(*(write(room) for room in rooms))
        async with matrix_gateway(where, proxy.base_url, agent) as node:
            await node.wait_until_listening()
            for room in rooms:
                await ana.send(room, "new")
            for room in rooms:
                await ana.wait_for_texts(room, agent.id, 1)
            await node.wait_until_quiet()
            for room in rooms:
                assert await ana.texts(room, agent.id) == ["re new"]
            assert len((await node.store.inbox.find(limit=1000)).items) == len(rooms)
            assert not proxy.sent("/messages$"), "old events were read"


def test_old_messages_before_the_first_sync_are_not_answered(
    synapse: Synapse, tmp_path: Path
) -> None:
    asyncio.run(_old_messages(synapse, str(tmp_path / "talk.db"), 120))


@pytest.mark.slow
def test_20_000_old_messages_before_the_first_sync_are_not_answered(
    synapse: Synapse, tmp_path: Path
) -> None:
    asyncio.run(_old_messages(synapse, str(tmp_path / "talk.db"), 20_000))


@pytest.mark.parametrize("stop_signal", [signal.SIGTERM, signal.SIGKILL])
def test_homeserver_is_restarted_in_the_middle(tmp_path: Path, stop_signal: signal.Signals) -> None:
    async def run(synapse: Synapse) -> None:
        async with (
            people(synapse, "ana", "agent") as (ana, agent),
            matrix_gateway(str(tmp_path / "talk.db"), synapse.base_url, agent) as node,
        ):
            room = await ana.create_room(agent)
            await ana.wait_for_member(room, agent.id)
            await ana.send(room, "one")
            await ana.wait_for_texts(room, agent.id, 1)
            await asyncio.to_thread(synapse.stop, stop_signal)
            # It waits for the homeserver, and arrives once.
            await node.store.outbox.put("news", f"matrix:{room}")

            async def is_tried() -> bool:
                (delivery,) = (await node.store.outbox.find(state="waiting")).items or [None]
                return delivery is not None and delivery.attempts > 0

            await wait_for(is_tried, "the delivery was tried")
            await asyncio.to_thread(synapse.start)
            await ana.send(room, "two")
            texts = await ana.wait_for_texts(room, agent.id, 3)
            assert sorted(texts) == ["news", "re one", "re two"]

    with own_synapse() as synapse:
        asyncio.run(run(synapse))


def test_one_of_two_nodes_listens_and_the_other_takes_over(
    synapse: Synapse, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "_WAIT_SECONDS", 0.1)
    where = postgres.database(postgres.template)

    async def run() -> None:
        async with people(synapse, "ana", "agent") as (ana, agent):
            rooms = [await ana.create_room(agent) for _ in range(3)]
            async with matrix_gateway(where, synapse.base_url, agent) as second:
                async with matrix_gateway(where, synapse.base_url, agent) as first:
                    for room in rooms:
                        await ana.send(room, "one")
                    for room in rooms:
                        assert await ana.wait_for_texts(room, agent.id, 1) == ["re one"]
                    listens = [node.adapter.state.listening for node in (first, second)]
                    assert sorted(listens) == [False, True]
                # One of them is stopped; what is written then is answered by the other.
                for room in rooms:
                    await ana.send(room, "two")
                for room in rooms:
                    texts = await ana.wait_for_texts(room, agent.id, 2)
                    assert texts == ["re one", "re two"]
                assert second.adapter.state.listening

    asyncio.run(run())
    postgres.drop(where)
