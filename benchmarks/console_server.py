"""A gateway with the parrot and its console, for the row `console`; it serves until its input ends.

python -m benchmarks.console_server STORE PEOPLE

It prints its port. For each line of its input it prints how much processor time it has used.
"""

from __future__ import annotations

import asyncio
import sys
import time

from benchmarks.crowd_tokens import secret_of
from tertulia import aio
from tertulia.agents.parrot import ParrotAgent
from tertulia.console.app import console_pages
from tertulia.gateway.app import Gateway
from tertulia.gateway.settings import GatewaySettings
from tertulia.http import HttpSettings, Token, serve
from tertulia.platforms.settings import PlatformSettings
from tertulia.platforms.web import WebAdapter

OWNER = "owner"


async def main(path: str, people: int) -> None:
    """Serve without limits of requests: one token for each person, and one for the owner."""
    tokens = [Token(name=f"p{number}", secret=secret_of(f"p{number}")) for number in range(people)]
    tokens.append(Token(name=OWNER, secret=secret_of(OWNER), role="owner"))
    settings = HttpSettings(
        port=0, tokens=tuple(tokens), requests_per_minute=10_000_000, streams_per_token=1000,
        connections_per_address=5000,
    )  # fmt: skip
    gateway_settings = GatewaySettings(
        platforms={"web": PlatformSettings(admission="everyone")}, drain_seconds=5
    )
    async with aio.open(path) as store:
        gateway = Gateway(store, ParrotAgent(), [WebAdapter()], settings=gateway_settings)
        running = asyncio.create_task(gateway.run())
        async with serve(gateway, settings, pages=console_pages) as address:
            print(address.port, flush=True)
            while await asyncio.to_thread(sys.stdin.readline):
                print(time.process_time(), flush=True)
        gateway.stop()
        await running


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
