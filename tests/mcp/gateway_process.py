"""A gateway with MCP servers, in a process of its own that is killed: `STORE FOLDER COUNT`.

It prints the processes of the servers once all of them are ready.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tertulia import aio
from tertulia.agents.parrot import ParrotAgent
from tertulia.gateway.app import Gateway
from tertulia.mcp.servers import McpServers
from tests.gateway.running_gateway import FAST, App, until
from tests.mcp.test_servers import hostile


async def main(where: str, folder: str, count: int) -> None:
    files = [Path(folder, f"pids-{number}") for number in range(count)]
    settings = {f"s{n}": hostile("grandchildren", file) for n, file in enumerate(files)}
    async with aio.open(where, settings=FAST) as store:
        servers = McpServers(store, settings, folder=str(Path(folder, "notes")))
        gateway = Gateway(store, ParrotAgent(), [App()], mcp=servers)
        running = asyncio.create_task(gateway.run())
        await until(
            lambda: all(client.state == "ready" for client in servers.clients.values()),
            "every server is ready",
            running,
        )
        for tool in await servers.tools_for("owner"):
            if tool.name.endswith("__echo"):
                await tool.call({"text": "begin"})
        print("ready", flush=True)
        await running


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
