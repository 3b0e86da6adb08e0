"""What one person can hand in has limits; the sender is told once, and others notice nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tertulia import LimitExceeded, Source, TooLarge, aio
from tertulia.agents import ParrotAgent
from tertulia.gateway.app import Gateway
from tertulia.gateway.settings import GatewaySettings
from tertulia.platforms.base import Adapter, Incoming, Outgoing, Receive
from tertulia.platforms.settings import PlatformSettings
from tertulia.platforms.web import WebAdapter
from tests.http.served_gateway import served_gateway

RULES = GatewaySettings(
    platforms={name: PlatformSettings(admission="everyone") for name in ("telegram", "web")},
    waiting_per_person=3,
    commands_per_minute=2,
    guest_text=10,
    drain_seconds=2,
)


class SilentAdapter(Adapter):
    """A platform whose senders do not wait for an answer."""

    name = "telegram"

    async def listen(self, receive: Receive) -> None:
        await asyncio.Event().wait()

    async def send(self, message: Outgoing) -> str | None:
        return None


def incoming(number: int, text: str = "hola", user: str = "7") -> Incoming:
    source = Source("telegram", f"{user}-{number}", user_id=user)
    return Incoming(source=source, text=text, message_id=str(number))


async def outbox_texts(store: aio.Store) -> list[str]:
    return [delivery.body["text"] for delivery in (await store.outbox.find()).items]


def test_waiting_messages_of_a_person_are_limited_and_told_once(tmp_path: Path) -> None:
    """60,000 messages of one person were accepted in 9 seconds."""

    async def run() -> None:
        async with aio.open(tmp_path / "talk.db") as store:
            gateway = Gateway(store, ParrotAgent(), [SilentAdapter()], settings=RULES)
            for number in range(20):
                await gateway.pipeline.receive(incoming(number))
            await gateway.pipeline.receive(incoming(0))  # a repeat is accepted as before
            await gateway.pipeline.receive(incoming(0, user="8"))
            waiting = (await store.inbox.find(state="waiting")).items
            assert [item.source.user_id for item in waiting] == ["7", "7", "7", "8"]
            (text,) = await outbox_texts(store)
            assert text.startswith("3 of your messages wait for an answer")

    asyncio.run(run())


def test_long_text_and_many_commands_are_refused_and_told_once(tmp_path: Path) -> None:
    async def run() -> None:
        async with aio.open(tmp_path / "talk.db") as store:
            gateway = Gateway(store, ParrotAgent(), [SilentAdapter()], settings=RULES)
            for number in range(5):
                await gateway.pipeline.receive(incoming(number, "x" * 11))
            assert not (await store.inbox.find()).items
            (text,) = await outbox_texts(store)
            assert text.startswith("This message is longer than 10 characters")
            for number in range(5):
                await gateway.pipeline.receive(incoming(number, "/whoami"))
            texts = await outbox_texts(store)
            assert len(texts) == 1 + 2 + 1
            assert texts[-1].startswith("These are too many commands")

    asyncio.run(run())


def test_sender_who_waits_gets_the_error(tmp_path: Path) -> None:
    rules = GatewaySettings(
        platforms=RULES.platforms, max_text=10, commands_per_minute=1, drain_seconds=2
    )
    with (
        served_gateway(tmp_path / "talk.db", adapters=[WebAdapter()], rules=rules) as server,
        server.client("ana") as client,
    ):
        long = client.post("/web/den/messages", json={"text": "x" * 11})
        assert (long.status_code, long.json()["error"]["code"]) == (413, "too_large")
        assert client.post("/web/den/messages", json={"text": "/whoami"}).status_code == 202
        many = client.post("/web/den/messages", json={"text": "/whoami"})
        assert many.status_code == 429
        assert int(many.headers["retry-after"]) >= 1


@pytest.mark.parametrize("limit", [1, 5])
def test_put_counts_waiting_messages_of_the_person(tmp_path: Path, limit: int) -> None:
    async def run() -> None:
        async with aio.open(tmp_path / "talk.db") as store:

            async def put(number: int) -> None:
                source = Source("telegram", str(number), user_id="7")
                await store.inbox.put(source, "x", message_id=number, waiting_limit=limit)

            for number in range(limit):
                await put(number)
            with pytest.raises(LimitExceeded):
                await put(limit)
            (item, *_) = await store.inbox.claim(1)
            await put(limit)  # a claimed message no longer waits
            await store.inbox.done(item)

    asyncio.run(run())


def test_errors_are_what_clients_know() -> None:
    assert LimitExceeded.retryable
    assert not TooLarge.retryable
