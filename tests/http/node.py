"""A gateway with its server in a process of its own, which can be killed.

    python -m tests.http.node STORE SETTINGS

It prints its address, and serves until its input is closed.
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
from tests.gateway.scene import IDLE
from tests.http.scene import EVERYONE, TOKENS

ROOT = Path(__file__).parents[2]
WEBHOOK_SECRET = "webhook-secret-0123456789"


class SlowParrot(ParrotAgent):
    """Does not come to an end when it is told `hang`, before anything like it was said once."""

    async def run(self, request: Request) -> AsyncGenerator[Event, None]:
        if request.text == "hang" and os.environ.get("NODE_HANGS"):
            yield Delta("I am thinking")
            await asyncio.Event().wait()
        async for event in super().run(request):
            yield event


class Node(NamedTuple):
    """A child that serves."""

    url: str
    child: subprocess.Popen[str]

    def kill(self) -> None:
        self.child.kill()
        self.child.wait()


@contextmanager
def node(path: Path, *, hangs: bool = False, **settings: Any) -> Iterator[Node]:
    """A child process that serves a store, until the end of the block."""
    command = [sys.executable, "-m", "tests.http.node", str(path), json.dumps(settings)]
    places = f"{ROOT / 'src'}{os.pathsep}{ROOT}"
    environment = {**os.environ, "PYTHONPATH": places, "NODE_HANGS": "1" if hangs else ""}
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
        assert url, "the server did not come up"
        try:
            yield Node(url, child)
        finally:
            assert child.stdin is not None
            child.stdin.close()
            child.wait(60)


async def main(path: str, settings: dict[str, Any]) -> None:
    given = {"port": 0, "tokens": TOKENS, "rate": 100_000, "drain_seconds": 1, **settings}
    # A lease that runs out soon, so that the next one need not wait long for a killed one's.
    async with aio.open(path, settings=Settings(lease_seconds=2, policies=IDLE)) as store:
        adapters = [WebAdapter(), WebhookAdapter(WEBHOOK_SECRET)]
        gateway = Gateway(store, SlowParrot(), adapters, rules=EVERYONE)
        running = asyncio.create_task(gateway.run())
        async with serve(gateway, HttpSettings(**given)) as serving:
            print(serving.url, flush=True)
            await asyncio.to_thread(sys.stdin.read)
        gateway.stop()
        await running


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))
