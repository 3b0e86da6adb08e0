"""A gateway with a real server on loopback, in a thread of its own, and clients of it."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeVar

import httpx2
import openai
from starlette.applications import Starlette

import tertulia
from tertulia import Settings, aio
from tertulia.agents import Agent, ParrotAgent
from tertulia.agents.base import Tool
from tertulia.gateway.agent_table import AgentTable
from tertulia.gateway.app import Gateway
from tertulia.gateway.settings import GatewaySettings
from tertulia.http import HttpSettings, Token, serve
from tertulia.http.app import Pages
from tertulia.platforms.base import Adapter
from tertulia.platforms.settings import PlatformSettings
from tertulia.processes.registry import ProcessRegistry
from tests.gateway.running_gateway import IDLE

T = TypeVar("T")
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
    """A gateway with its server under test."""

    url: str
    path: Path | str
    loop: asyncio.AbstractEventLoop
    gateway: Gateway
    clients: list[openai.OpenAI]
    app: Starlette

    def client(self, name: str | None = "root", **options: Any) -> httpx2.Client:
        headers = {"Authorization": f"Bearer {SECRETS[name]}"} if name else {}
        headers |= options.pop("headers", {})
        # Reading the certificates would take longer than most requests, which need none.
        options = {"verify": False, "timeout": PATIENCE, **options}
        return httpx2.Client(base_url=self.url, headers=headers, **options)

    def openai(self, name: str = "ana", **options: Any) -> openai.OpenAI:
        client = openai.OpenAI(
            base_url=f"{self.url}/v1", api_key=SECRETS[name], max_retries=0, **options
        )
        self.clients.append(client)
        return client

    def store(self) -> tertulia.Store:
        return tertulia.open(self.path)


@contextmanager
def served_gateway(
    path: Path | str,
    *,
    agent: Agent | None = None,
    adapters: Sequence[Adapter] = (),
    rules: GatewaySettings = EVERYONE,
    programs: Path | None = None,
    pages: Pages | None = None,
    agents: AgentTable | None = None,
    tools: Sequence[Tool] = (),
    **settings: Any,
) -> Iterator[ServedGateway]:
    """Run a gateway and its server until the end of the block.

    `programs` is the folder of background processes; None: the gateway runs none.
    """
    started: Future[ServedGateway] = Future()
    values = {
        "tokens": TOKENS,
        "port": 0,
        "requests_per_minute": 100_000,
        "drain_seconds": 2,
        "refusal_seconds": 0,
        **settings,
    }
    stops: list[asyncio.Event] = []

    async def serve_until_stopped() -> None:
        others = tuple(entry.name for entry in agents or ())[1:]
        store_settings = Settings(policies=IDLE, agents=others)
        async with aio.open(path, settings=store_settings) as store:
            processes = None if programs is None else ProcessRegistry(store.sync, programs)
            gateway = Gateway(
                store, agent or ParrotAgent(), adapters,
                settings=rules, processes=processes, agents=agents, tools=tuple(tools),
            )  # fmt: skip
            stop = asyncio.Event()
            stops.append(stop)
            running = asyncio.create_task(gateway.run())
            async with serve(gateway, HttpSettings(**values), pages=pages) as address:
                loop = asyncio.get_running_loop()
                served = ServedGateway(address.url, path, loop, gateway, [], address.app)
                started.set_result(served)
                await stop.wait()
            gateway.stop()
            await running

    def run() -> None:
        try:
            asyncio.run(serve_until_stopped())
        except BaseException as problem:
            if started.done():
                raise
            started.set_exception(problem)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield started.result(PATIENCE)
    finally:
        if stops:
            for client in started.result().clients:
                client.close()
            started.result().loop.call_soon_threadsafe(stops[0].set)
        thread.join(PATIENCE)
    assert not thread.is_alive()


def run_in(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in the loop of a served gateway and return its result."""
    return asyncio.run_coroutine_threadsafe(work, loop).result(PATIENCE)


@asynccontextmanager
async def served_adapter(adapter: Adapter) -> AsyncIterator[str]:
    """Serve one adapter and yield the URL; the test listens to the adapter, not the gateway."""
    with TemporaryDirectory() as folder:
        async with aio.open(Path(folder) / "talk.db") as store:
            gateway = Gateway(store, ParrotAgent(), [adapter])
            settings = HttpSettings(port=0, tokens=TOKENS, drain_seconds=1)
            async with serve(gateway, settings) as address:
                yield address.url


def parse_events(text: str) -> list[tuple[str, Any]]:
    """Return the name and the data of each event in the body of a stream."""
    events = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if line[:1] != ":")
        if "data" in fields:
            events.append((fields.get("event", ""), json.loads(fields["data"])))
    return events


def eventually(look: Callable[[], Any]) -> Any:
    """Call `look` until it returns something true, and return that."""
    deadline = time.monotonic() + PATIENCE
    while not (result := look()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return result
