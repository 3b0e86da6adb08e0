"""A gateway with the parrot over HTTP, for the row `crowd`; it serves until its input ends.

python -m benchmarks.crowd_server STORE PEOPLE
"""

from __future__ import annotations

import asyncio
import sys

from benchmarks.crowd_tokens import FLOODER, secret_of
from tertulia import aio
from tertulia.agents.parrot import ParrotAgent
from tertulia.cli.serve import tune_garbage_collection
from tertulia.gateway.app import Gateway
from tertulia.gateway.settings import GatewaySettings
from tertulia.http import HttpSettings, Token, serve
from tertulia.platforms.settings import PlatformSettings
from tertulia.platforms.web import WebAdapter


async def main(path: str, people: int) -> None:
    """Serve with the default limits: one token for each person, and one for the flooder."""
    tokens = [Token(name=f"p{number}", secret=secret_of(f"p{number}")) for number in range(people)]
    tokens.append(Token(name=FLOODER, secret=secret_of(FLOODER), role="guest"))
    gateway_settings = GatewaySettings(
        platforms={"web": PlatformSettings(admission="everyone")}, drain_seconds=5
    )
    async with aio.open(path) as store:
        gateway = Gateway(store, ParrotAgent(), [WebAdapter()], settings=gateway_settings)
        running = asyncio.create_task(gateway.run())
        async with serve(gateway, HttpSettings(port=0, tokens=tuple(tokens))) as address:
            tune_garbage_collection()  # as `tertulia run` does
            print(address.port, flush=True)
            await asyncio.to_thread(sys.stdin.read)
        gateway.stop()
        await running


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
