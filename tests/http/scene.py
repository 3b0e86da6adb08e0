"""A real server on loopback, in a thread of its own, and clients of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import openai

import tertulia
from tertulia import Settings, aio
from tertulia.agents import Agent, ParrotAgent
from tertulia.gateway.app import Gateway
from tertulia.gateway.settings import (
    GatewaySettings,
    PlatformSettings,
)
from tertulia.http import HttpSettings, Token, serve
from tertulia.platforms.base import Adapter
from tertulia.processes.registry import ProcessRegistry
from tests.gateway.scene import IDLE

PATIENCE = 60.0
SECRETS = {name: f"{name}-secret-0123456789" for name in ("root", "ana", "bob", "eve")}
TOKENS = (
    Token(name="root", secret=SECRETS["root"], role="owner"),
    Token(name="ana", secret=SECRETS["ana"]),
    Token(name="bob", secret=SECRETS["bob"]),
    Token(name="eve", secret=SECRETS["eve"], role="guest"),
)
EVERYONE = GatewaySettings(
    platforms={name: PlatformSettings(admission="everyone") for name in ("web", "webhook")},
    drain_seconds=2,
)


class ServedGateway(NamedTuple):
    """A server under test."""

    url: str
    path: Path
    loop: asyncio.AbstractEventLoop
    gateway: Gateway
    clients: list[openai.OpenAI]

    def client(self, name: str | None = "root", **options: Any) -> httpx2.Client:
        headers = {"Authorization": f"Bearer {SECRETS[name]}"} if name else {}
        headers |= options.pop("headers", {})
        return httpx2.Client(base_url=self.url, headers=headers, timeout=PATIENCE, **options)

    def openai(self, name: str = "ana", **options: Any) -> openai.OpenAI:
        found = openai.OpenAI(
            base_url=f"{self.url}/v1", api_key=SECRETS[name], max_retries=0, **options
        )
        self.clients.append(found)
        return found

    def store(self) -> tertulia.Store:
        return tertulia.open(self.path)


@contextmanager
def served_gateway(
    path: Path,
    *,
    agent: Agent | None = None,
    adapters: Sequence[Adapter] = (),
    rules: GatewaySettings = EVERYONE,
    programs: Path | None = None,
    **settings: Any,
) -> Iterator[ServedGateway]:
    """A gateway and its server, until the end of the block; with `programs` it runs some."""
    found: Future[ServedGateway] = Future()
    given = {"tokens": TOKENS, "port": 0, "rate": 100_000, "drain_seconds": 2, **settings}
    stops: list[asyncio.Event] = []

    async def live() -> None:
        async with aio.open(path, settings=Settings(policies=IDLE)) as store:
            processes = None if programs is None else ProcessRegistry(store.sync, programs)
            gateway = Gateway(
                store, agent or ParrotAgent(), adapters, rules=rules, processes=processes
            )
            stop = asyncio.Event()
            stops.append(stop)
            running = asyncio.create_task(gateway.run())
            async with serve(gateway, HttpSettings(**given)) as serving:
                loop = asyncio.get_running_loop()
                found.set_result(ServedGateway(serving.url, path, loop, gateway, []))
                await stop.wait()
            gateway.stop()
            await running

    def run() -> None:
        try:
            asyncio.run(live())
        except BaseException as problem:
            if found.done():
                raise
            found.set_exception(problem)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        ready = found.result(PATIENCE)
        yield ready
    finally:
        if stops:
            for client in found.result().clients:
                client.close()
            found.result().loop.call_soon_threadsafe(stops[0].set)
        thread.join(PATIENCE)
    assert not thread.is_alive()
