"""Listening: each adapter in a loop of its own, under a lease if only one node may listen.

    wait for the lease → listen from the stored cursor → lease lost, or stopped → wait again

The lease lasts 15 s and is renewed every 5 s. A node that cannot renew it in time, because it was
stopped or is cut off from the database, stops listening; another node takes the lease over and goes
on from the cursor, which is stored only after everything before it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable
from functools import partial

from tertulia import aio
from tertulia.core.backoff import JITTER
from tertulia.errors import AccountProblem, Error, LeaseLost
from tertulia.gateway import retries
from tertulia.gateway.account_pauses import AccountPauses
from tertulia.gateway.adapters import describe, key_of
from tertulia.platforms.base import Adapter, MenuEntry, Update
from tertulia.records import listeners
from tertulia.records.listeners import Connection, ListenerLease
from tertulia.version import __version__

log = logging.getLogger("tertulia.gateway")

_RENEW_SECONDS = 5.0
_WAIT_SECONDS = 1.0
_REPORT_SECONDS = 10.0
_LOOK_SECONDS = 1.0
# An adapter that has listened for so long before it failed begins with the shortest pause again.
_STABLE_SECONDS = 60.0


def node_name() -> str:
    """Return a name for this process that no other node has, and that people recognise."""
    return f"{socket.gethostname()}:{os.getpid()}:{os.urandom(3).hex()}"


class AccountListener:
    """Runs the adapter of one account, for as long as the gateway runs."""

    def __init__(
        self,
        store: aio.Store,
        adapter: Adapter,
        receive: Callable[[Update], Awaitable[None]],
        *,
        node: str,
        pauses: AccountPauses,
        menu: tuple[MenuEntry, ...] = (),
    ) -> None:
        self._store = store
        self._adapter = adapter
        self._receive = receive
        self._node = node
        self._pauses = pauses
        self._menu = menu
        self._has_menu = False
        self._failures = 0
        self._lease: ListenerLease | None = None
        adapter.remember_id = partial(
            store.person_ids.remember, adapter.name, adapter.account or ""
        )

    @property
    def _name(self) -> str:
        return describe(key_of(self._adapter))

    async def run(self) -> None:
        """Listen until cancelled, or until the adapter ends by itself, as a terminal does."""
        while True:
            started = time.monotonic()
            try:
                if await self._listen_once():
                    return
            except LeaseLost:
                log.warning("%s: another node took the lease to listen", self._name)
                continue
            except AccountProblem as problem:
                self._adapter.mark_problem(problem.message)
                await asyncio.sleep(self._pauses.pause(key_of(self._adapter), problem))
                continue
            except Error as problem:
                self._adapter.mark_problem(problem.message)
                pause = self._next_pause(started, problem.retry_after)
                log.warning(
                    "%s stopped listening, retrying in %.1f s: %s", self._name, pause, problem
                )
            except Exception as bug:
                self._adapter.mark_problem(f"The adapter failed: {type(bug).__name__}.")
                pause = self._next_pause(started, None)
                log.exception("the adapter of %s has a bug, retrying in %.1f s", self._name, pause)
            await asyncio.sleep(pause)

    def _next_pause(self, started: float, asked_seconds: float | None) -> float:
        is_stable = time.monotonic() - started > _STABLE_SECONDS
        self._failures = 1 if is_stable else self._failures + 1
        return asked_seconds or retries.LISTEN_BACKOFF.delay(self._failures, JITTER.random())

    async def _listen_once(self) -> bool:
        """Listen once; return whether the adapter has ended by itself."""
        if not self._adapter.listens_alone:
            await self._listen()
            return True
        lease = await self._claim()
        self._lease = lease
        self._adapter.cursor = lease.cursor
        listening = asyncio.create_task(self._listen())
        renewing = asyncio.create_task(self._renew(lease))
        try:
            await asyncio.wait([listening, renewing], return_when=asyncio.FIRST_COMPLETED)
        finally:
            # The connection is closed before the lease is given back, so that never two nodes
            # listen at once.
            await _cancel(listening)
            await _cancel(renewing)
            self._lease = None
            if self._adapter.state.listening:
                self._adapter.mark_problem(None)
            # A failure here must not take the place of the cancellation: the lease runs out anyway.
            release = asyncio.ensure_future(self._store.listeners.release(lease))
            await asyncio.gather(asyncio.shield(release), return_exceptions=True)
        if not listening.cancelled():
            listening.result()
            return True
        if not renewing.cancelled():
            renewing.result()
        return False

    async def _listen(self) -> None:
        if not self._has_menu:
            await self._adapter.fill_menu(self._menu)
            self._has_menu = True
        await self._adapter.listen(self._accept)

    async def _accept(self, update: Update) -> None:
        """Store an update, and then the cursor behind it."""
        await self._receive(update)
        self._pauses.end(key_of(self._adapter))
        if update.cursor is not None and self._lease is not None:
            await self._store.listeners.advance(self._lease, update.cursor)

    # -- the lease

    async def _claim(self) -> ListenerLease:
        """Wait until this node may listen."""
        name, account = self._adapter.name, self._adapter.account or ""
        while True:
            try:
                if await self._store.listeners.wait(name, account, _WAIT_SECONDS):
                    lease = await self._store.listeners.claim(
                        name, account, self._node, lease_seconds=listeners.LEASE_SECONDS
                    )
                    if lease is not None:
                        log.info("%s: this node took the lease to listen", self._name)
                        return lease
            except Error as problem:
                log.warning(
                    "%s: the lease could not be claimed, retrying in %g s: %s",
                    self._name, _LOOK_SECONDS, problem,
                )  # fmt: skip
                await asyncio.sleep(_LOOK_SECONDS)

    async def _renew(self, lease: ListenerLease) -> None:
        """Renew the lease until it is lost; then raise `LeaseLost`."""
        renewed = time.monotonic()
        while True:
            await asyncio.sleep(_RENEW_SECONDS)
            started = time.monotonic()
            try:
                # A database that does not answer must not keep this node listening.
                async with asyncio.timeout(renewed + listeners.LEASE_SECONDS - started):
                    await self._store.listeners.renew(lease, lease_seconds=listeners.LEASE_SECONDS)
                renewed = started
            except TimeoutError:
                raise _run_out(self._name) from None
            except LeaseLost:
                raise
            except Error as problem:
                if time.monotonic() - renewed > listeners.LEASE_SECONDS - _RENEW_SECONDS:
                    raise _run_out(self._name) from problem
                log.warning("%s: the lease could not be renewed: %s", self._name, problem)


class ConnectionReporter:
    """Stores that this node lives, and how it is connected, for people who look."""

    def __init__(
        self,
        store: aio.Store,
        adapters: list[Adapter],
        *,
        node: str,
        pauses: AccountPauses,
        count_turns: Callable[[], int],
    ) -> None:
        self._store = store
        self._count_turns = count_turns
        self._node_reported_at: float | None = None
        self._adapters = adapters
        self._node = node
        self._pauses = pauses
        self._reported: dict[str, tuple[Connection, float]] = {}

    async def run(self) -> None:
        """Report changes within a second, and everything every ten, until cancelled."""
        try:
            while True:
                try:
                    await self.report()
                except Error as problem:
                    log.warning("the state of the accounts could not be stored: %s", problem)
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            forget = asyncio.ensure_future(self._forget())
            await asyncio.gather(asyncio.shield(forget), return_exceptions=True)

    async def _forget(self) -> None:
        await self._store.listeners.forget(self._node)
        await self._store.nodes.forget(self._node)

    async def report(self) -> None:
        """Store that this node lives, and the connections that changed or are due."""
        now = time.monotonic()
        if self._node_reported_at is None or now - self._node_reported_at >= _REPORT_SECONDS:
            self._node_reported_at = now
            await self._store.nodes.report(
                self._node, version=__version__, turns=self._count_turns()
            )
            for name in await self._store.nodes.forget_ended():
                log.info("the process of node %s has ended; its work is free", name)
        for adapter in self._adapters:
            connection = self.connection(adapter)
            name = describe(key_of(adapter))
            before, at = self._reported.get(name, (None, 0.0))
            is_changed = before is None or _outline(before) != _outline(connection)
            if is_changed or now - at >= _REPORT_SECONDS:
                await self._store.listeners.report(connection)
                self._reported[name] = connection, now

    def connection(self, adapter: Adapter) -> Connection:
        """Return the connection of this node to the account of an adapter."""
        state = adapter.state
        return Connection(
            platform=adapter.name,
            account=adapter.account or "",
            node=self._node,
            listening=state.listening,
            since=state.since,
            heard_at=state.heard_at,
            problem=self._pauses.problem(key_of(adapter)) or state.problem,
        )


def _outline(connection: Connection) -> tuple[bool, str | None]:
    return connection.listening, connection.problem


def _run_out(name: str) -> LeaseLost:
    return LeaseLost(f"The lease of {name} ran out.", hint="Another node may listen now.")


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
