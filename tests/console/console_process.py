"""A gateway with its console in a process of its own, which a test can kill.

    python -m tests.console.console_process STORE PORT

It prints its URL and serves until its standard input is closed. With the variable SERVER_HANGS set,
its parrot never finishes its answer to `hang`.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tertulia import Settings, aio
from tertulia.console.app import console_pages
from tertulia.gateway.app import Gateway
from tertulia.http import HttpSettings, serve
from tertulia.platforms.web import WebAdapter
from tests.gateway.running_gateway import IDLE
from tests.http.served_gateway import EVERYONE, TOKENS
from tests.http.server_process import ROOT, HangingParrot, ServerProcess


@contextmanager
def console_process(path: str, port: int, *, hangs: bool = False) -> Iterator[ServerProcess]:
    """Run a child process that serves a store until the end of the block."""
    command = [sys.executable, "-m", "tests.console.console_process", path, str(port)]
    import_path = f"{ROOT / 'src'}{os.pathsep}{ROOT}"
    environment = {**os.environ, "PYTHONPATH": import_path, "SERVER_HANGS": "1" if hangs else ""}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
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


async def main(path: str, port: int) -> None:
    # A short lease: the next process need not wait long for the lease of a killed one.
    async with aio.open(path, settings=Settings(lease_seconds=2, policies=IDLE)) as store:
        gateway = Gateway(store, HangingParrot(), [WebAdapter()], settings=EVERYONE)
        running = asyncio.create_task(gateway.run())
        settings = HttpSettings(
            port=port, tokens=TOKENS, requests_per_minute=100_000, drain_seconds=1
        )
        async with serve(gateway, settings, pages=console_pages) as address:
            print(address.url, flush=True)
            await asyncio.to_thread(sys.stdin.read)
        gateway.stop()
        await running


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
