"""After `kill -9` of a gateway no process of its MCP servers is left."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.mcp.test_servers import is_alive

pytestmark = pytest.mark.check

if sys.platform != "linux":
    pytest.skip("looks into /proc", allow_module_level=True)

ROOT = Path(__file__).parents[2]
COUNT = 5
# The guards need two seconds to ask, then they kill; the rest is for a busy machine.
PATIENCE = 60.0


def family(pid: int) -> set[int]:
    """Return the processes below a process."""
    children: set[int] = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        children |= {int(child) for child in task.read_text().split()}
    return children | {below for child in children for below in family(child)}


def test_no_process_of_a_server_is_left_after_a_kill(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.mcp.gateway_process", str(tmp_path / "talk.db")]
    gateway = subprocess.Popen(
        [*command, str(tmp_path), str(COUNT)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert gateway.stdout is not None
    with gateway:
        assert gateway.stdout.readline() == "ready\n"
        pids = family(gateway.pid)
        grandchildren = [
            pid for file in tmp_path.glob("pids-*") for pid in json.loads(file.read_text())
        ]
        # A guard, its program and two grandchildren for each server.
        assert len(grandchildren) == 2 * COUNT
        assert {*grandchildren} <= pids
        assert len(pids) >= 4 * COUNT
        gateway.send_signal(signal.SIGKILL)
        killed_at = time.monotonic()
    while left := [pid for pid in pids if is_alive(pid)]:
        assert time.monotonic() < killed_at + PATIENCE, left
        time.sleep(0.05)
    print(f"all {len(pids)} processes were gone after {time.monotonic() - killed_at:.1f} s")
