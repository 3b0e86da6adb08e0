"""A gateway with a Matrix account in a process of its own, which dies at a named step.

python -m tests.matrix.gateway_process STORE BASE_URL STEP   with the token in MATRIX_TOKEN
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from typing import Any

from tertulia import aio
from tertulia.agents.base import Delta, Event, Request, Step
from tertulia.core.backoff import Backoff
from tertulia.core.source import Source
from tertulia.gateway import listening, retries
from tertulia.gateway.app import Gateway
from tertulia.gateway.settings import GatewaySettings
from tertulia.platforms.base import StreamUpdate
from tertulia.platforms.matrix import MatrixSettings
from tertulia.platforms.matrix.adapter import MatrixAdapter
from tertulia.records import listeners
from tests.crash.gateway_process import SETTINGS, Death

STEPS = ("received", "stored", "cursor", "answering", "drafted", "answered", "sending", "sent")


class MortalAdapter(MatrixAdapter):
    """Dies at a step of a message."""

    death: Death

    async def _hand_over_event(self, *arguments: Any) -> None:
        self.death.at("received")
        await super()._hand_over_event(*arguments)
        self.death.at("stored")

    async def _move_cursor(self, *arguments: Any) -> None:
        has_begun = self.cursor is not None
        await super()._move_cursor(*arguments)
        if has_begun:
            self.death.at("cursor")

    async def show(self, source: Source, update: StreamUpdate) -> str | None:
        draft_id = await super().show(source, update)
        if update.kind == "draft" and draft_id is not None:
            self.death.at("drafted")
        return draft_id

    async def send(self, message: Any) -> str | None:
        self.death.at("sending")
        event_id = await super().send(message)
        self.death.at("sent")
        return event_id


class Streaming:
    """Answers "re TEXT" in pieces, slowly enough for a draft."""

    name = "streaming"

    def __init__(self, death: Death, step: str) -> None:
        self._death = death
        self._waits = step == "drafted"

    async def run(self, request: Request) -> AsyncGenerator[Event, None]:
        self._death.at("answering")
        yield Delta("re ")
        yield Delta(request.text[:2])
        if self._waits:
            await asyncio.Event().wait()  # it dies with its draft
        yield Step(f"re {request.text}")
        self._death.at("answered")

    async def close(self) -> None:
        pass


async def serve(where: str, base_url: str, token: str, step: str) -> None:
    # A node that was killed is replaced at once: a test must not wait for leases of production.
    listeners.LEASE_SECONDS, listening._RENEW_SECONDS = 1.0, 0.2
    retries.SEND_BACKOFF = Backoff(first=0.1, longest=0.2)
    death = Death(step)
    settings = MatrixSettings(base_url=base_url, token=token, admission="everyone")
    adapter = MortalAdapter(settings, token, draft_seconds=0.02)
    adapter.death = death
    access = GatewaySettings(platforms={"matrix": settings}, drain_seconds=5, timestamps="none")
    async with aio.open(where, settings=SETTINGS) as store:
        gateway = Gateway(store, Streaming(death, step), [adapter], settings=access)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, gateway.stop)
        await gateway.run()


if __name__ == "__main__":
    _, store_location, homeserver, step_name = sys.argv
    asyncio.run(serve(store_location, homeserver, os.environ["MATRIX_TOKEN"], step_name))
