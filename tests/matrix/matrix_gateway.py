"""A running gateway whose only platform is a Matrix account."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from tertulia import aio
from tertulia.agents.base import Agent
from tertulia.gateway.app import Gateway
from tertulia.gateway.settings import GatewaySettings
from tertulia.platforms.matrix import MatrixSettings
from tertulia.platforms.matrix.adapter import MatrixAdapter
from tests.gateway.running_gateway import FAST, Echo, check
from tests.matrix.people import Person, wait_for


class MatrixNode:
    """One node: its store, its gateway and its adapter."""

    def __init__(self, store: aio.Store, gateway: Gateway, adapter: MatrixAdapter) -> None:
        self.store = store
        self.gateway = gateway
        self.adapter = adapter
        self.running = asyncio.create_task(gateway.run())

    async def wait_until_listening(self) -> None:
        await wait_for(lambda: self.adapter.state.listening, "the gateway listens")

    async def wait_until_quiet(self) -> None:
        """Wait until nothing is to be answered or sent."""
        await wait_for(self._is_quiet, "all is answered and sent")

    async def _is_quiet(self) -> bool:
        if self.running.done():
            await self.running
        items = (await self.store.inbox.find(limit=1000)).items
        deliveries = (await self.store.outbox.find(limit=1000)).items
        return not any(item.state in ("waiting", "taken") for item in items) and not any(
            delivery.state in ("waiting", "sending") for delivery in deliveries
        )


@asynccontextmanager
async def matrix_gateway(
    where: str,
    base_url: str,
    agent: Person,
    program: Agent | None = None,
    *,
    draft_seconds: float = 0.05,
    **options: Any,
) -> AsyncIterator[MatrixNode]:
    """Yield a gateway that serves the account; in the end it is stopped, and its store is sound."""
    settings = MatrixSettings(
        base_url=base_url, token=agent.token, **{"admission": "everyone", **options}
    )
    adapter = MatrixAdapter(settings, agent.token, draft_seconds=draft_seconds)
    access = GatewaySettings(platforms={"matrix": settings}, drain_seconds=5, timestamps="none")
    async with aio.open(where, settings=FAST) as store:
        gateway = Gateway(store, program or Echo(), [adapter], settings=access)
        node = MatrixNode(store, gateway, adapter)
        try:
            yield node
        finally:
            gateway.stop()
            with suppress(asyncio.CancelledError):
                await node.running
        await check(store)
