"""The client of one MCP server: its program runs while it is used."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tertulia.mcp.definitions import ToolList
from tertulia.mcp.leftovers import ProcessNotes
from tertulia.mcp.protocol import ServerUnavailable
from tertulia.mcp.server_client import ServerClient
from tertulia.mcp.stdio import StdioConnection
from tests.mcp.test_servers import hostile

pytestmark = pytest.mark.check

if os.name == "nt":
    pytest.skip("starts programs of a Unix", allow_module_level=True)

IDLE_SECONDS = 3600.0


async def ignore_tools(server: str, tools: ToolList) -> None:
    pass


async def run_until_stopped(client: ServerClient) -> None:
    """Run a client until it begins to stop its idle program, and cancel it at that moment."""
    running = asyncio.create_task(client.run())
    while client.state != "stopped":
        await asyncio.sleep(0)
        assert not running.done()
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


def test_program_that_was_called_meanwhile_is_not_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each wait for an idle program ends at once; only during the first one there is a call."""
    results: list[dict[str, Any]] = []
    waits = 0
    real_wait = asyncio.wait

    async def play() -> None:
        client = ServerClient(
            "odd", hostile("good"), on_tools=ignore_tools, idle_seconds=IDLE_SECONDS
        )

        async def wait(tasks: Any, **options: Any) -> Any:
            nonlocal waits
            if options.get("timeout") != IDLE_SECONDS:
                return await real_wait(tasks, **options)
            waits += 1
            if waits == 1:
                results.append(await client.call("echo", {"text": "hi"}))
            return set(), tasks

        monkeypatch.setattr(asyncio, "wait", wait)
        await run_until_stopped(client)

    asyncio.run(play())
    assert results == [{"content": [{"type": "text", "text": "echo hi"}]}]
    assert waits == 2


def test_gateway_that_stops_waits_for_a_program_that_is_being_stopped(tmp_path: Path) -> None:
    notes = ProcessNotes(str(tmp_path))

    async def play() -> None:
        client = ServerClient(
            "odd", hostile("good"), on_tools=ignore_tools, notes=notes, idle_seconds=0.01
        )
        await run_until_stopped(client)

    asyncio.run(play())
    assert list(tmp_path.iterdir()) == []  # the program has ended, so its note is gone


@pytest.mark.parametrize("program", ["no-such-program", "./no-such-program"])
def test_missing_program_is_named(program: str) -> None:
    with pytest.raises(ServerUnavailable, match=f"the program {program} is missing"):
        asyncio.run(StdioConnection.start("odd", [program], {"PATH": os.environ["PATH"]}))
