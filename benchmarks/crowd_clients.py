"""Those who disturb the server of the row `crowd`: idle connections, and one token that floods.

python -m benchmarks.crowd_clients PORT IDLE

It prints a line when they are connected, and, when its input ends, which statuses the flooder got.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress

from benchmarks.crowd_tokens import FLOODER
from benchmarks.kept_connection import KeptConnection

_FLOODING_CONNECTIONS = 16


async def _idle(port: int) -> None:
    """Hold a connection that never sends a whole request; open it again when it is closed."""
    while True:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(b"GET / HT")
                while await reader.read(1000):
                    pass
            finally:
                writer.close()
        await asyncio.sleep(1)


async def _flood(port: int, statuses: dict[int, int]) -> None:
    """Post as fast as the server answers."""
    connection, number = KeptConnection(port, FLOODER), 0
    try:
        while True:
            number += 1
            with suppress(OSError, asyncio.IncompleteReadError):
                status, _ = await connection.post("/turns", {"text": f"flood {number}" * 100})
                statuses[status] = statuses.get(status, 0) + 1
    finally:
        connection.close()


async def _run(port: int, idle: int) -> None:
    statuses = dict[int, int]()
    tasks = [asyncio.create_task(_idle(port)) for _ in range(idle)]
    await asyncio.sleep(2)
    tasks += [asyncio.create_task(_flood(port, statuses)) for _ in range(_FLOODING_CONNECTIONS)]
    print("connected", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    print(json.dumps(statuses), flush=True)


if __name__ == "__main__":
    asyncio.run(_run(int(sys.argv[1]), int(sys.argv[2])))
