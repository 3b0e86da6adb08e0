"""Programs of MCP servers that a gateway has left behind are ended by the next start."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from tertulia import aio
from tertulia.mcp.leftovers import ProcessNotes
from tertulia.mcp.servers import McpServers
from tests.gateway.running_gateway import FAST, until
from tests.mcp.test_servers import hostile

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


def test_note_of_a_living_gateway_is_never_removed(tmp_path: Path) -> None:
    """A gateway that starts meanwhile sees a note whole or not at all."""
    notes = ProcessNotes(str(tmp_path / "notes"))
    path = tmp_path / "notes" / f"files-{os.getpid()}.json"
    is_over = threading.Event()

    def start_other_gateways() -> None:
        while not is_over.is_set():
            ProcessNotes(str(tmp_path / "notes")).end_leftovers()

    other = threading.Thread(target=start_other_gateways)
    other.start()
    try:
        for _ in range(300):
            notes.remember("files", os.getpid())
            assert path.exists()
    finally:
        is_over.set()
        other.join()
    assert list((tmp_path / "notes").iterdir()) == [path]


def test_server_is_used_although_no_note_can_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        async with aio.open(tmp_path / "talk.db", settings=FAST) as store:
            servers = McpServers(store, {"good": hostile("good")}, folder=str(tmp_path / "notes"))
            (tmp_path / "notes").rmdir()
            running = asyncio.create_task(servers.run())
            await until(lambda: servers.clients["good"].state == "ready", "it is ready", running)
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running

    asyncio.run(play())
    assert "cannot note the process of MCP server good" in caplog.text
