"""A gateway program that starts three programs, prints their ids, and waits to be killed."""

from __future__ import annotations

import asyncio
import sys

from tertulia import aio
from tertulia.gateway.app import Gateway
from tertulia.processes.registry import ProcessRegistry
from tests.gateway.running_gateway import App, Echo
from tests.processes.process_fixtures import ANA, BEN, SETTINGS

# One continues, one ends while no gateway runs, one has a terminal and asks a question.
LASTING = "for n in 1 2 3; do echo step $n; done; read; echo the end"
ENDING = "echo begun; while [ ! -e {flag} ]; do sleep 0.05; done; seq 1 5000; exit 4"
ASKING = "read -p 'name? ' name; echo \"hello $name\""


async def main(where: str, folder: str) -> None:
    async with aio.open(where, settings=SETTINGS) as store:
        registry = ProcessRegistry(store.sync, folder)
        gateway = Gateway(store, Echo(), [App()], processes=registry)
        serving = asyncio.create_task(gateway.run())
        ana = (await store.sessions.open(ANA)).key
        ben = (await store.sessions.open(BEN)).key
        started = [
            registry.spawn(LASTING, key=ana, origin=ANA),
            registry.spawn(ENDING.format(flag=f"{folder}/flag"), key=ben, origin=BEN),
            registry.spawn(ASKING, key=ana, origin=ANA, pty=True),
        ]
        print(*(process.id for process in started), flush=True)
        await serving


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
