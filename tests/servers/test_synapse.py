"""The Matrix server for tests: how it is chosen, shared and ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.servers import synapse
from tests.servers.synapse import ROOT, Synapse, own_synapse, shared_synapse

PATIENCE = 120.0

# Uses the shared server, prints its port, and waits to be killed.
_HOLD = """
import time
from tests.servers.synapse import shared_synapse
with shared_synapse() as server:
    print(server.port, flush=True)
    time.sleep(600)
"""


def test_missing_server_names_every_way_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synapse, "program", lambda: None)
    for start in (own_synapse, shared_synapse):
        with pytest.raises(RuntimeError) as problem, start():
            pass
        for way in ("make check", "TEST_SYNAPSE_PYTHON", "Rust"):
            assert way in str(problem.value)


def test_named_interpreter_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_SYNAPSE_PYTHON", sys.executable)
    assert synapse.program() == sys.executable


def test_named_interpreter_that_cannot_run_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TEST_SYNAPSE_PYTHON", str(tmp_path / "python"))
    with pytest.raises(RuntimeError, match="TEST_SYNAPSE_PYTHON"):
        synapse.program()


@pytest.mark.check
def test_workers_share_a_server_that_ends_with_the_last_of_them(tmp_path: Path) -> None:
    session = f"test{os.getpid()}"
    environ = {**os.environ, "PYTEST_XDIST_TESTRUNUID": session}
    command = [sys.executable, "-c", _HOLD]
    workers = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environ)
        for _ in range(2)
    ]
    ports = set()
    for worker in workers:
        assert worker.stdout is not None
        ports.add(int(worker.stdout.readline()))
        worker.stdout.close()
    assert len(ports) == 1
    server = Synapse(tmp_path, ports.pop())
    first, last = workers
    _kill(first)
    assert server.is_up()
    _kill(last)
    deadline = time.monotonic() + PATIENCE
    while server.is_up():
        assert time.monotonic() < deadline, "the server runs on"
        time.sleep(0.05)


def _kill(worker: subprocess.Popen[str]) -> None:
    worker.send_signal(signal.SIGKILL)
    worker.wait()
