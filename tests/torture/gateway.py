"""One node that is a real gateway, on the same platform as `node.py`, which uses only the store.

python -m tests.torture.gateway STORE PORT NAME LEASE
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import signal
import sys
from collections.abc import AsyncGenerator

from msgspec.structs import replace

from tertulia import Settings, Source, StoreUnavailable, ToolCall, Usage, aio
from tertulia.agents.base import Event, Request, Step, ToolResult
from tertulia.gateway.app import Gateway
from tertulia.gateway.settings import GatewaySettings
from tertulia.platforms.base import Adapter, Incoming, Outgoing, Receive
from tertulia.platforms.settings import PlatformSettings
from tertulia.records.queues.inbox import InboxItem
from tests.legality.validators import faults
from tests.records.store_inspection import FAST
from tests.torture.platform import Client

_SETTINGS = GatewaySettings(
    platforms={"telegram": PlatformSettings(admission="everyone")}, drain_seconds=5
)


class PlatformAdapter(Adapter):
    """The adapter to the fake platform, over HTTP."""

    name = "telegram"
    idempotent_seconds = math.inf

    def __init__(self, port: int) -> None:
        self._port = port

    async def call(self, name: str, **arguments: object) -> list[dict[str, str]]:
        """Call the platform on a new connection: calls of many tasks must not mix."""
        result: list[dict[str, str]] = await asyncio.to_thread(
            Client(self._port).call, name, **arguments
        )
        return result

    async def listen(self, receive: Receive) -> None:
        while True:
            updates = await self.call("updates")
            for update in updates:
                source = Source("telegram", update["chat"], user_id=update["chat"])
                await receive(Incoming(source=source, text=update["text"], message_id=update["id"]))
                await self.call("ack", update=update)
            if not updates:
                await asyncio.sleep(0.02)

    async def send(self, message: Outgoing) -> None:
        delivery = message.delivery
        await self.call("send", delivery=delivery, chat=message.chat_id, text=message.text)


class ScriptedAgent:
    """An agent with the same tool calls for the same message; it fails on an illegal history."""

    name = "scripted"

    async def run(self, request: Request) -> AsyncGenerator[Event, None]:
        message_id = request.text.removeprefix("question ")
        generator = random.Random(message_id)
        for _ in range(generator.choice((0, 0, 1, 2))):
            assert not faults("openai", await request.history())
            calls = [
                ToolCall(f"call_{n}", "look", {"n": n}) for n in range(generator.randint(1, 2))
            ]
            yield Step(None, tuple(calls), usage=Usage(10, 1, model="scripted"))
            await asyncio.sleep(generator.uniform(0, 0.05))
            for call in calls:
                yield ToolResult(call.id, f"seen for {message_id}")
        yield Step(f"answer {message_id}", usage=Usage(20, 2, model="scripted"))

    async def close(self) -> None:
        pass


async def serve(location: str, port: int, name: str, lease: float) -> None:
    settings = replace(FAST, lease_seconds=lease, busy_seconds=10)
    store = await _open_store(location, settings)
    adapter = PlatformAdapter(port)
    gateway = Gateway(store, ScriptedAgent(), [adapter], settings=_SETTINGS)
    answer = gateway.pipeline.inbox_worker._run

    async def answer_and_report(item: InboxItem) -> None:
        await adapter.call("claimed", message=item.message_id, node=name)
        await answer(item)
        await adapter.call("done", message=item.message_id)

    gateway.pipeline.inbox_worker._run = answer_and_report
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, gateway.stop)
    print("ready", flush=True)
    await gateway.run()
    await store.close()


async def _open_store(location: str, settings: Settings) -> aio.Store:
    while True:
        try:
            return await aio.open(location, settings=settings)
        except StoreUnavailable:
            await asyncio.sleep(0.1)


if __name__ == "__main__":
    logging.disable()  # broken connections are expected here
    _, store_location, platform_port, node_name, lease_seconds = sys.argv
    asyncio.run(serve(store_location, int(platform_port), node_name, float(lease_seconds)))
