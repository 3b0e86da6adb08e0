"""Programs of MCP servers that a gateway has left behind are ended by the next start."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tertulia import aio
from tertulia.mcp.leftovers import ProcessNotes
from tertulia.mcp.servers import McpServers
from tests.gateway.running_gateway import FAST, until

pytestmark = pytest.mark.check

if os.name == "nt":
    pytest.skip("starts programs of a Unix", allow_module_level=True)

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]


def note_of_a_dead_gateway(folder: Path, pid: int) -> Path:
    """Write the note that a gateway which was killed has left about a program."""
    ProcessNotes(str(folder)).remember("files", pid)
    (path,) = folder.iterdir()
    note = json.loads(path.read_text())
    path.write_text(json.dumps({**note, "gateway": 2**22 - 1, "gateway_mark": "gone"}))
    return path


def test_a_leftover_is_ended_at_start_and_others_live_on(tmp_path: Path) -> None:
    with (
        subprocess.Popen(SLEEPER, start_new_session=True) as leftover,
        subprocess.Popen(SLEEPER, start_new_session=True) as other,
    ):
        try:
            path = note_of_a_dead_gateway(tmp_path / "notes", leftover.pid)
            # A pid that belongs to another program by now is not touched.
            stranger = json.loads(path.read_text()) | {"pid": other.pid, "mark": "earlier"}
            (tmp_path / "notes" / "mail-1.json").write_text(json.dumps(stranger))

            async def play() -> None:
                async with aio.open(tmp_path / "talk.db", settings=FAST) as store:
                    servers = McpServers(store, {}, folder=str(tmp_path / "notes"))
                    running = asyncio.create_task(servers.run())
                    await until(lambda: leftover.poll() is not None, "the leftover has ended")
                    await until(lambda: not list((tmp_path / "notes").iterdir()), "notes are gone")
                    running.cancel()
                    with suppress(asyncio.CancelledError):
                        await running

            asyncio.run(play())
            assert other.poll() is None
        finally:
            leftover.kill()
            other.kill()
