"""A gateway: adapters, an agent and a store, plugged together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tertulia import aio
from tertulia.agents.base import Agent, Tool
from tertulia.errors import Error
from tertulia.gateway.adapters import Adapters
from tertulia.gateway.agent_table import AgentTable, ConfiguredAgent
from tertulia.gateway.expiry import ExpiryWatcher, Flush
from tertulia.gateway.image_describer import ImageDescriber
from tertulia.gateway.pipeline import Pipeline
from tertulia.gateway.result_files import ResultFiles
from tertulia.gateway.retention_job import RetentionJob
from tertulia.gateway.settings import GatewaySettings
from tertulia.platforms.base import Adapter
from tertulia.processes.poller import ProcessPoller

if TYPE_CHECKING:
    from tertulia.mcp.servers import McpServers
    from tertulia.processes.registry import ProcessRegistry

log = logging.getLogger("tertulia.gateway")


class Gateway:
    """One node. Many nodes may share one PostgreSQL database; any of them may die at any moment.

    `agent` answers everywhere, unless `agents` has several. `folder` is where the results of
    schedules are written whose target is `local`.
    """

    def __init__(
        self,
        store: aio.Store,
        agent: Agent,
        adapters: Sequence[Adapter],
        *,
        settings: GatewaySettings | None = None,
        tools: Sequence[Tool] = (),
        flush: Flush | None = None,
        folder: str | None = None,
        processes: ProcessRegistry | None = None,
        describer: ImageDescriber | None = None,
        mcp: McpServers | None = None,
        agents: AgentTable | None = None,
    ) -> None:
        self.store = store
        self.agents = agents or AgentTable([ConfiguredAgent(store.settings.agent, agent)])
        self.agent = self.agents.main.agent
        self.settings = settings or GatewaySettings()
        self.adapters = Adapters(adapters)
        self.pipeline = Pipeline(
            store,
            self.agents,
            self.adapters,
            self.settings,
            tuple(tools),
            processes,
            folder,
            describer,
            mcp,
        )
        self.mcp = mcp
        if mcp is not None:
            mcp.tell = self.pipeline.tell_owner
        self.expiry_watcher = ExpiryWatcher(store, every=self.settings.watch_seconds, flush=flush)
        self._result_files = None if folder is None else ResultFiles(folder)
        self.process_poller = ProcessPoller(processes)
        self._stop_requested = asyncio.Event()
        # The time of the event loop by which everything has to be drained, once draining began.
        self.drain_deadline: float | None = None

    async def run(self) -> None:
        """Serve until `stop`, then drain: finish turns in progress, and leave the rest stored.

        If a loop of the gateway fails, drain as well, and raise the failure.
        """
        loops = self.pipeline.start()
        background = [
            asyncio.create_task(self.expiry_watcher.run()),
            asyncio.create_task(self.expiry_watcher.run_approvals()),
            asyncio.create_task(RetentionJob(self.store, files=self._result_files).run()),
            asyncio.create_task(self.process_poller.run()),
        ]
        servers = [] if self.mcp is None else [asyncio.create_task(self.mcp.run())]
        stop = asyncio.create_task(self._stop_requested.wait())
        try:
            await asyncio.wait(
                [stop, *loops.endless, *background, *servers], return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            # In the direction of a message: while turns drain, they can still be interrupted, and
            # their answers are still sent; claims are renewed until the last item is settled.
            deadline = asyncio.get_running_loop().time() + self.settings.drain_seconds
            self.drain_deadline = deadline
            failure = await _cancel(stop, *loops.listeners, *loops.claims)
            await self._drain_turns()
            failure = await _cancel(*servers) or failure
            failure = await _cancel(loops.deliveries, loops.interrupts, *background) or failure
            await self._drain_deliveries()
            # The node lives until now: its terminal shows the last answers, and nobody else.
            failure = await _cancel(*loops.renewals, loops.reporter) or failure
            await self._close()
        if failure is not None:
            raise failure

    def stop(self) -> None:
        """Begin to drain. Safe to call from a signal handler of the event loop, and twice."""
        self._stop_requested.set()

    def drain_seconds_left(self) -> float:
        """Return how long may still be drained; `drain_seconds` before draining began.

        At least a second, so that answers of the turns that were cut off last can be sent.
        """
        if self.drain_deadline is None:
            return self.settings.drain_seconds
        left = self.drain_deadline - asyncio.get_running_loop().time()
        return max(left, min(1.0, self.settings.drain_seconds))

    async def _drain_turns(self) -> None:
        """Let the turns of messages, schedules and callers finish, side by side."""
        pipeline, seconds = self.pipeline, self.drain_seconds_left()
        cancelled = sum(
            await asyncio.gather(
                pipeline.inbox_worker.drain(seconds),
                pipeline.schedule_worker.drain(seconds),
                *(responder.drain(seconds) for responder in pipeline.responders),
            )
        )
        if cancelled:
            log.warning("%s turns were cut off, they continue with the next start", cancelled)

    async def _drain_deliveries(self) -> None:
        try:
            await self.pipeline.delivery_worker.drain(self.drain_seconds_left())
        except Error as problem:
            log.warning("outbox claim failed, the rest is sent with the next start: %s", problem)

    async def _close(self) -> None:
        closers = [(adapter.name, adapter.close) for adapter in self.adapters.values()]
        closers += [("agents", self.agents.close)]
        closers += [("media", self.pipeline.media_preparer.close)]
        if self.pipeline.describer is not None:
            closers += [("describer", self.pipeline.describer.close)]
        for name, close in closers:
            try:
                await close()
            except Exception:
                log.exception("%s could not be closed", name)


async def _cancel(*tasks: asyncio.Task[Any]) -> Exception | None:
    """Cancel tasks and wait for their end; return an exception that one of them had raised."""
    for task in tasks:
        task.cancel()
    failure = None
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):
            log.error("a loop of the gateway failed, stopping", exc_info=result)
            failure = result
    return failure
