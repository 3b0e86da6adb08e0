"""A gateway: adapters, an agent and a store, plugged together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tertulia import aio
from tertulia.agents.base import Agent, Tool
from tertulia.errors import Error
from tertulia.gateway import commands
from tertulia.gateway.deliveries import DeliveryWorker
from tertulia.gateway.expiry import (
    ExpiryWatcher,
    Flush,
)
from tertulia.gateway.pipeline import Pipeline
from tertulia.gateway.schedule_runner import (
    AT_ONCE,
    ScheduleRunner,
)
from tertulia.gateway.settings import GatewaySettings
from tertulia.gateway.workers import Worker
from tertulia.platforms.base import Adapter
from tertulia.processes.poller import ProcessPoller

if TYPE_CHECKING:
    from tertulia.processes.registry import ProcessRegistry

log = logging.getLogger("tertulia.gateway")

_REST_SECONDS = 5.0  # before an adapter that failed listens again


class Gateway:
    """One node. Many of them may run on one PostgreSQL; any of them may die at any moment.

    `folder` is where results of schedules are written that go to `local`.
    """

    def __init__(
        self,
        store: aio.Store,
        agent: Agent,
        adapters: Sequence[Adapter],
        *,
        rules: GatewaySettings | None = None,
        tools: Sequence[Tool] = (),
        flush: Flush | None = None,
        folder: str | None = None,
        processes: ProcessRegistry | None = None,
    ) -> None:
        self.store = store
        self.agent = agent
        self.rules = rules or GatewaySettings()
        self.adapters = {adapter.name: adapter for adapter in adapters}
        self.pipeline = Pipeline(store, agent, self.adapters, self.rules, tuple(tools), processes)
        lease = store.settings.lease_seconds
        self.lanes = Worker(store.inbox, self.pipeline.answer, self.rules.turns, lease=lease)
        runner = ScheduleRunner(self.pipeline, self.adapters, folder)
        self.runs = Worker(store.schedules, runner.run, AT_ONCE, lease=lease)
        self.deliveries = DeliveryWorker(store, self.adapters, self.rules.sends)
        self.watcher = ExpiryWatcher(store, every=self.rules.watch_seconds, flush=flush)
        self.processes = ProcessPoller(processes)
        self._stops = asyncio.Event()

    async def run(self) -> None:
        """Serve until `stop`, then drain: what is under way is finished, what waits is stored.

        If a part of the gateway itself fails, it drains too, and raises what had failed.
        """
        begin = asyncio.create_task
        inward = [begin(self._listen(adapter)) for adapter in self.adapters.values()]
        lanes = [begin(self.lanes.run()), begin(self.runs.run())]
        outward = begin(self.deliveries.run())
        beside = [begin(self.pipeline.interrupts.run()), begin(self.watcher.run())]
        beside.append(begin(self.processes.run()))
        keepers = [begin(one.keep()) for one in (self.lanes, self.runs, self.deliveries)]
        stops = begin(self._stops.wait())
        try:
            parts = [stops, *lanes, outward, *beside, *keepers]
            await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # A turn under way can still be stopped, and what it answers is still sent.
            failed = await _cancel(stops, *inward, *lanes)
            await self._drain_turns()
            failed = await _cancel(outward, *beside) or failed
            await self._drain_deliveries()
            failed = await _cancel(*keepers) or failed
            await self._close()
        if failed is not None:
            raise failed

    def stop(self) -> None:
        """Begin to drain; safe to call from a signal handler of the loop, and twice."""
        self._stops.set()

    async def _listen(self, adapter: Adapter) -> None:
        """Have an adapter listen, again and again where it fails: no adapter ends the others."""
        is_ready = False
        while True:
            try:
                if not is_ready:
                    await adapter.fill_menu(commands.menu())
                    is_ready = True
                await adapter.listen(self.pipeline.receive)
            except Error as problem:
                log.warning("%s does not listen: %s", adapter.name, problem)
            except Exception:
                log.exception("the adapter of %s has a bug", adapter.name)
            else:
                return
            await asyncio.sleep(_REST_SECONDS)

    async def _drain_turns(self) -> None:
        drained = (one.drain(self.rules.drain_seconds) for one in (self.lanes, self.runs))
        cut_off = sum(await asyncio.gather(*drained))
        if cut_off:
            log.warning("%s turns were cut off; they go on with the next start", cut_off)

    async def _drain_deliveries(self) -> None:
        try:
            await self.deliveries.drain(self.rules.drain_seconds)
        except Error as problem:
            log.warning("some deliveries wait for the next start: %s", problem)

    async def _close(self) -> None:
        closing = [(adapter.name, adapter.close) for adapter in self.adapters.values()]
        for name, close in [*closing, (self.agent.name, self.agent.close)]:
            try:
                await close()
            except Exception:
                log.exception("%s could not be closed", name)


async def _cancel(*tasks: asyncio.Task[Any]) -> Exception | None:
    """End tasks; what one of them had failed with."""
    for task in tasks:
        task.cancel()
    failed = None
    for problem in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(problem, Exception):
            log.error("a part of the gateway had failed", exc_info=problem)
            failed = problem
    return failed
