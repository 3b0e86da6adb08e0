"""One node that is a real gateway; what `node.py` does with the bare store, on the same platform.

python -m tests.torture.gateway STORE PORT NAME LEASE
"""

from __future__ import annotations

import asyncio
import logging
import random
import signal
import sys
from collections.abc import AsyncGenerator

from msgspec.structs import replace

from tertulia import Settings, Source, StoreUnavailable, ToolCall, Usage, aio
from tertulia.agents.base import Event, Request, Step, ToolResult
from tertulia.gateway.app import Gateway
from tertulia.gateway.settings import (
    GatewaySettings,
    PlatformSettings,
)
from tertulia.platforms.base import Adapter, Incoming, Outgoing, Receive
from tertulia.records.queues.inbox import InboxItem
from tests.legality.validators import faults
from tests.records.store_inspection import FAST
from tests.torture.platform import Client

_RULES = GatewaySettings(
    platforms={"telegram": PlatformSettings(admission="everyone")}, drain_seconds=5
)


class Line(Adapter):
    """The platform, over HTTP."""

    name = "telegram"
    is_idempotent = True

    def __init__(self, port: int) -> None:
        self._port = port

    async def ask(self, name: str, **asked: object) -> list[dict[str, str]]:
        """On a connection of its own: calls of many tasks must not mix."""
        found: list[dict[str, str]] = await asyncio.to_thread(Client(self._port).ask, name, **asked)
        return found

    async def listen(self, receive: Receive) -> None:
        while True:
            found = await self.ask("updates")
            for update in found:
                source = Source("telegram", update["chat"], user_id=update["chat"])
                await receive(Incoming(source=source, text=update["text"], message_id=update["id"]))
                await self.ask("ack", update=update)
            if not found:
                await asyncio.sleep(0.02)

    async def send(self, message: Outgoing) -> None:
        delivery = message.delivery
        await self.ask("send", delivery=delivery, chat=message.chat_id, text=message.text)


class Scripted:
    """Calls tools or not, always in the same way for a message; never sees an illegal history."""

    name = "scripted"

    async def run(self, request: Request) -> AsyncGenerator[Event, None]:
        message_id = request.text.removeprefix("question ")
        chance = random.Random(message_id)
        for _ in range(chance.choice((0, 0, 1, 2))):
            assert not faults("openai", await request.history())
            calls = [ToolCall(f"call_{n}", "look", {"n": n}) for n in range(chance.randint(1, 2))]
            yield Step(None, tuple(calls), usage=Usage(10, 1, model="scripted"))
            await asyncio.sleep(chance.uniform(0, 0.05))
            for call in calls:
                yield ToolResult(call.id, f"seen for {message_id}")
        yield Step(f"answer {message_id}", usage=Usage(20, 2, model="scripted"))

    async def close(self) -> None:
        pass


async def serve(where: str, port: int, name: str, lease: float) -> None:
    settings = replace(FAST, lease_seconds=lease, busy_seconds=10)
    store = await _opened(where, settings)
    line = Line(port)
    gateway = Gateway(store, Scripted(), [line], rules=_RULES)
    answer = gateway.lanes._answer

    async def noted(arrival: InboxItem) -> None:
        await line.ask("claimed", message=arrival.message_id, node=name)
        await answer(arrival)
        await line.ask("done", message=arrival.message_id)

    gateway.lanes._answer = noted
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, gateway.stop)
    print("ready", flush=True)
    await gateway.run()
    await store.close()


async def _opened(where: str, settings: Settings) -> aio.Store:
    while True:
        try:
            return await aio.open(where, settings=settings)
        except StoreUnavailable:
            await asyncio.sleep(0.1)


if __name__ == "__main__":
    logging.disable()  # connections that break are what this is about
    _, place, number, called, seconds = sys.argv
    asyncio.run(serve(place, int(number), called, float(seconds)))
