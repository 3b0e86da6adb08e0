"""A gateway with its server in a process of its own, which a test can kill.

    python -m tests.http.server_process STORE SETTINGS

It prints its URL, and serves until its standard input is closed.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tertulia import Settings, aio
from tertulia.agents import Delta, ParrotAgent
from tertulia.agents.base import Event, Request
from tertulia.gateway.app import Gateway
from tertulia.http import HttpSettings, serve
from tertulia.platforms.web import WebAdapter
from tertulia.platforms.webhook import WebhookAdapter
from tests.gateway.running_gateway import IDLE
from tests.http.served_gateway import EVERYONE, TOKENS

ROOT = Path(__file__).parents[2]
WEBHOOK_SECRET = "webhook-secret-0123456789"


class HangingParrot(ParrotAgent):
    """A parrot that never finishes its answer to `hang`, if the variable SERVER_HANGS is set."""

    async def run(self, request: Request) -> AsyncGenerator[Event, None]:
        if request.text == "hang" and os.environ.get("SERVER_HANGS"):
            yield Delta("I am thinking")
            await asyncio.Event().wait()
        async for event in super().run(request):
            yield event


class ServerProcess(NamedTuple):
    """A running child process and its URL."""

    url: str
    child: subprocess.Popen[str]

    def kill(self) -> None:
        self.child.kill()
        self.child.wait()


@contextmanager
def server_process(path: Path, *, hangs: bool = False, **settings: Any) -> Iterator[ServerProcess]:
    """Run a child process that serves a store until the end of the block."""
    command = [sys.executable, "-m", "tests.http.server_process", str(path), json.dumps(settings)]
    import_path = f"{ROOT / 'src'}{os.pathsep}{ROOT}"
    environment = {**os.environ, "PYTHONPATH": import_path, "SERVER_HANGS": "1" if hangs else ""}
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        url = child.stdout.readline().strip()
        assert url, "the server did not start"
        try:
            yield ServerProcess(url, child)
        finally:
            assert child.stdin is not None
            child.stdin.close()
            child.wait(60)


async def main(path: str, settings: dict[str, Any]) -> None:
    values = {
        "port": 0,
        "tokens": TOKENS,
        "requests_per_minute": 100_000,
        "drain_seconds": 1,
        **settings,
    }
    # A short lease: the next process need not wait long for the lease of a killed one.
    async with aio.open(path, settings=Settings(lease_seconds=2, policies=IDLE)) as store:
        adapters = [WebAdapter(), WebhookAdapter(WEBHOOK_SECRET)]
        gateway = Gateway(store, HangingParrot(), adapters, settings=EVERYONE)
        running = asyncio.create_task(gateway.run())
        async with serve(gateway, HttpSettings(**values)) as address:
            print(address.url, flush=True)
            await asyncio.to_thread(sys.stdin.read)
        gateway.stop()
        await running


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))
