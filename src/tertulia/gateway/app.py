"""A gateway: adapters, an agent and a store, plugged together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from tertulia import aio
from tertulia.agents.base import Agent, Tool
from tertulia.errors import Error
from tertulia.gateway import commands
from tertulia.gateway.deliver import Deliveries
from tertulia.gateway.lanes import Lanes
from tertulia.gateway.path import Path
from tertulia.gateway.rules import Rules
from tertulia.gateway.watch import Flush, Watcher
from tertulia.platforms.base import Adapter

log = logging.getLogger("tertulia.gateway")

_REST_SECONDS = 5.0  # before an adapter that failed listens again


class Gateway:
    """One node. Many of them may run on one PostgreSQL; any of them may die at any moment."""

    def __init__(
        self,
        store: aio.Store,
        agent: Agent,
        adapters: Sequence[Adapter],
        *,
        rules: Rules | None = None,
        tools: Sequence[Tool] = (),
        flush: Flush | None = None,
    ) -> None:
        self.store = store
        self.agent = agent
        self.rules = rules or Rules()
        self.adapters = {adapter.name: adapter for adapter in adapters}
        self.path = Path(store, agent, self.adapters, self.rules, tuple(tools))
        self.lanes = Lanes(store, self.path.answer, self.rules.turns)
        self.deliveries = Deliveries(store, self.adapters, self.rules.sends)
        self.watcher = Watcher(store, every=self.rules.watch_seconds, flush=flush)
        self._stops = asyncio.Event()

    async def run(self) -> None:
        """Serve until `stop`, then drain: what is under way is finished, what waits is stored."""
        inward = [asyncio.create_task(self._listen(one)) for one in self.adapters.values()]
        lanes = asyncio.create_task(self.lanes.run())
        outward = [
            asyncio.create_task(self.deliveries.run()),
            asyncio.create_task(self.watcher.run()),
        ]
        try:
            await self._stops.wait()
        finally:
            await _cancel(*inward, lanes)
            cut_off = await self.lanes.drain(self.rules.drain_seconds)
            if cut_off:
                log.warning("%s turns were cut off; they go on with the next start", cut_off)
            await _cancel(*outward)
            try:
                await self.deliveries.drain()
            except Error as problem:
                log.warning("some deliveries wait for the next start: %s", problem)
            for adapter in self.adapters.values():
                await adapter.close()
            await self.agent.close()

    def stop(self) -> None:
        """Begin to drain; safe to call from a signal handler of the loop, and twice."""
        self._stops.set()

    async def _listen(self, adapter: Adapter) -> None:
        await adapter.fill_menu(commands.menu())
        while True:
            try:
                await adapter.listen(self.path.receive)
            except Error as problem:
                log.warning("%s does not listen: %s", adapter.name, problem)
                await asyncio.sleep(_REST_SECONDS)
            else:
                return


async def _cancel(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    for problem in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(problem, Exception):
            log.error("a part of the gateway had failed", exc_info=problem)
