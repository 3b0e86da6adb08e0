"""A gateway with a Telegram bot in a process of its own, which dies at a named step.

    python -m tests.crash.telegram_process STORE ADDRESS STEP LEASE

ADDRESS is a Bot API server, LEASE how many seconds this node may listen without renewing it. It
runs until it is killed, or drains after SIGTERM.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncGenerator

from tertulia import Settings, aio
from tertulia.agents.base import Delta, Event, Request, Step
from tertulia.gateway import listening
from tertulia.gateway.app import Gateway
from tertulia.gateway.settings import GatewaySettings
from tertulia.platforms.base import Outgoing, Receive, Update
from tertulia.platforms.settings import PlatformSettings
from tertulia.platforms.telegram.adapter import TelegramAdapter
from tertulia.records import listeners
from tests.crash.gateway_process import Death
from tests.gateway.running_gateway import IDLE
from tests.servers.telegram import TOKEN

SETTINGS = Settings(zone="UTC", durability="safe", lease_seconds=2.0, policies=IDLE)
# One person writes all messages, and hundreds may wait while gateways are killed.
RULES = GatewaySettings(
    gather_seconds=0,
    waiting_per_person=10_000,
    platforms={"telegram": PlatformSettings(admission="everyone")},
)
# The stations of a message; in the last two Telegram may or may not have the answer.
STEPS = ("received", "stored", "answering", "answered", "sending", "sent")


class DyingAdapter(TelegramAdapter):
    """A bot whose process dies at a step of a message."""

    def __init__(self, address: str, death: Death) -> None:
        super().__init__(TOKEN, base_url=address)
        self._death = death

    async def listen(self, receive: Receive) -> None:
        async def dying(update: Update) -> None:
            self._death.at("received")
            await receive(update)
            self._death.at("stored")

        await super().listen(dying)

    async def send(self, message: Outgoing) -> str | None:
        self._death.at("sending")
        number = await super().send(message)
        self._death.at("sent")
        return number


class Echo:
    """Answers "re TEXT", a word at a time."""

    name = "echo"

    def __init__(self, death: Death) -> None:
        self._death = death

    async def run(self, request: Request) -> AsyncGenerator[Event, None]:
        self._death.at("answering")
        yield Delta("re ")
        yield Delta(request.text)
        yield Step(f"re {request.text}")
        self._death.at("answered")

    async def close(self) -> None:
        return


async def serve(where: str, address: str, step: str, lease: str) -> None:
    listeners.LEASE_SECONDS = float(lease)
    listening._RENEW_SECONDS = float(lease) / 3
    death = Death(step)
    async with aio.open(where, settings=SETTINGS) as store:
        gateway = Gateway(store, Echo(death), [DyingAdapter(address, death)], settings=RULES)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, gateway.stop)
        await gateway.run()


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
