"""Pushed messages: accepted only while something listens, one at a time for each chat."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tertulia import Source
from tertulia.errors import PlatformUnavailable
from tertulia.platforms.base import Incoming, Outgoing, Receive, Update
from tertulia.platforms.push import PushAdapter


class Pushed(PushAdapter):
    name = "pushed"

    async def send(self, message: Outgoing) -> None:
        return


def incoming(text: str, chat: str = "1") -> Incoming:
    return Incoming(source=Source("pushed", chat), text=text, message_id=text)


@asynccontextmanager
async def listening(adapter: PushAdapter, receive: Receive) -> AsyncIterator[None]:
    task = asyncio.create_task(adapter.listen(receive))
    await asyncio.sleep(0)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_message_is_refused_while_nothing_listens() -> None:
    async def play() -> None:
        adapter, texts = Pushed(), []

        async def receive(message: Update) -> None:
            assert isinstance(message, Incoming)
            texts.append(message.text)

        with pytest.raises(PlatformUnavailable):
            await adapter.accept(incoming("early"))
        async with listening(adapter, receive):
            await adapter.accept(incoming("now"))
        with pytest.raises(PlatformUnavailable):
            await adapter.accept(incoming("late"))
        assert texts == ["now"]

    asyncio.run(play())


def test_messages_of_a_chat_are_handed_over_one_at_a_time() -> None:
    async def play() -> None:
        adapter, goes_on, started = Pushed(), asyncio.Event(), []

        async def receive(message: Update) -> None:
            assert isinstance(message, Incoming)
            started.append(message.text)
            await goes_on.wait()

        async with listening(adapter, receive):
            messages = (incoming("a"), incoming("b"), incoming("c", "2"))
            tasks = [asyncio.create_task(adapter.accept(message)) for message in messages]
            await asyncio.sleep(0.05)
            assert sorted(map(str, started)) == ["a", "c"]  # another chat does not wait
            goes_on.set()
            await asyncio.gather(*tasks)
            assert started[-1] == "b"

    asyncio.run(play())


def test_error_of_the_gateway_reaches_the_sender() -> None:
    async def play() -> None:
        async def receive(message: Update) -> None:
            assert isinstance(message, Incoming)
            raise PlatformUnavailable("not stored")

        adapter = Pushed()
        async with listening(adapter, receive):
            with pytest.raises(PlatformUnavailable, match="not stored"):
                await adapter.accept(incoming("a"))

    asyncio.run(play())
