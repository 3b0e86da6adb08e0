"""A gateway with one account of a chat app in a process, which dies at a named step.

`tests/crash/chat_node.py` starts it. The platform is discord, signal, slack or whatsapp. The
address is that of its server, the port is where WhatsApp calls the gateway, and the lease is how
many seconds this node may listen without renewing it. It runs until it is killed, or drains after
SIGTERM.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Any

from tertulia import Settings, aio
from tertulia.agents.base import Delta, Event, Request, Step
from tertulia.gateway import listening
from tertulia.gateway.app import Gateway
from tertulia.gateway.settings import GatewaySettings
from tertulia.http import HttpSettings, serve
from tertulia.platforms.base import Adapter, Incoming, Outgoing, Receive, Update
from tertulia.platforms.discord.adapter import DiscordAdapter
from tertulia.platforms.settings import PlatformSettings
from tertulia.platforms.signal.adapter import SignalAdapter
from tertulia.platforms.slack.adapter import SlackAdapter
from tertulia.platforms.whatsapp.adapter import WhatsAppAdapter
from tertulia.records import listeners
from tests.crash.gateway_process import Death
from tests.gateway.running_gateway import IDLE
from tests.servers import discord, slack, whatsapp
from tests.servers import signal as signal_server

SETTINGS = Settings(zone="UTC", durability="safe", lease_seconds=2.0, policies=IDLE)
OPEN = PlatformSettings(admission="everyone")
PLATFORMS = ("discord", "signal", "slack", "whatsapp")
RULES = GatewaySettings(gather_seconds=0, platforms=dict.fromkeys(PLATFORMS, OPEN))
# The stations of a message; in the last two the platform may or may not have the answer.
STEPS = ("received", "stored", "answering", "answered", "sending", "sent")


class _Dying(Adapter):
    """Dies at a step of a message; mixed into the adapter of a platform."""

    death: Death

    async def listen(self, receive: Receive) -> None:
        async def dying(update: Update) -> None:
            if not isinstance(update, Incoming):
                await receive(update)  # a cursor alone is no message
                return
            self.death.at("received")
            await receive(update)
            self.death.at("stored")

        await super().listen(dying)  # type: ignore[safe-super]

    async def send(self, message: Outgoing) -> str | None:
        self.death.at("sending")
        number = await super().send(message)  # type: ignore[safe-super]
        self.death.at("sent")
        return number


class DyingDiscord(_Dying, DiscordAdapter):
    """A Discord bot whose process dies."""


class DyingSignal(_Dying, SignalAdapter):
    """A Signal account whose process dies."""


class DyingSlack(_Dying, SlackAdapter):
    """A Slack app whose process dies."""


class DyingWhatsApp(_Dying, WhatsAppAdapter):
    """A WhatsApp number whose process dies."""


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


def make_adapter(platform: str, address: str) -> Any:
    if platform == "discord":
        return DyingDiscord(discord.TOKEN, base_url=f"{address}/api/v10")
    if platform == "signal":
        return DyingSignal(signal_server.NUMBER, base_url=address)
    if platform == "slack":
        return DyingSlack(
            slack.BOT_TOKEN, app_token=slack.APP_TOKEN, base_url=f"{address}/api", connections=1
        )
    return DyingWhatsApp(
        whatsapp.TOKEN, phone_number_id=whatsapp.NUMBER_ID, app_secret=whatsapp.APP_SECRET,
        verify_token=whatsapp.VERIFY_TOKEN, base_url=f"{address}/v23.0",
    )  # fmt: skip


async def run(
    platform: str, where: str, address: str, step: str, port: str = "0", lease: str = "2"
) -> None:
    listeners.LEASE_SECONDS = float(lease)
    listening._RENEW_SECONDS = float(lease) / 3
    death = Death(step)
    adapter = make_adapter(platform, address)
    adapter.death = death
    async with aio.open(where, settings=SETTINGS) as store, AsyncExitStack() as stack:
        gateway = Gateway(store, Echo(death), [adapter], settings=RULES)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, gateway.stop)
        if platform == "whatsapp":
            settings = HttpSettings(port=int(port), drain_seconds=1)
            await stack.enter_async_context(serve(gateway, settings))
        await gateway.run()


def main(*arguments: str) -> None:
    """Run the gateway in this process."""
    asyncio.run(run(*arguments))
