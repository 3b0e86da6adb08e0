"""A gateway is killed with -9 while programs run: no program and no output is lost."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

import tertulia
from tertulia import aio
from tertulia.gateway.app import Gateway
from tertulia.processes import supervisor
from tertulia.processes.registry import ProcessRegistry
from tertulia.testing import FakeClock
from tests.gateway.running_gateway import App, Echo
from tests.processes.process_fixtures import (
    ANA,
    BEN,
    SETTINGS,
    TIMEOUT_SECONDS,
    wait_until,
    wait_until_async,
)

pytestmark = pytest.mark.check


def _kill_gateway(where: str, folder: Path) -> list[str]:
    """Start a gateway, kill it, and return the ids of the programs it had started."""
    command = [sys.executable, "-m", "tests.processes.gateway_program", where, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        started = host.stdout.readline().split()
        host.send_signal(signal.SIGKILL)
        host.wait()
    assert len(started) == 3
    return started


def test_killed_gateway_loses_no_program(where: str, tmp_path: Path) -> None:
    folder = tmp_path / "programs"
    lasting, ending, asking = _kill_gateway(where, folder)
    with tertulia.open(where, settings=SETTINGS) as store:
        before = store.sessions.current(store.sessions.key(ANA))
        # One of them ends while no gateway runs.
        (folder / "flag").touch()
        ended = os.path.join(store.processes.require(ending).folder, supervisor.ENDED)
        wait_until(lambda: os.path.exists(ended), "it has ended")
    app = App()
    clock = FakeClock(datetime.now(UTC))
    asyncio.run(_restart_gateway(where, folder, app, clock, (lasting, ending, asking), before))
    assert sum(f"{lasting} " in text and "still running" in text for text in app.to(ANA)) == 1
    assert sum(f"{asking} " in text and "still running" in text for text in app.to(ANA)) == 1
    [notice] = app.to(BEN)
    assert f"{ending} " in notice
    assert "exit code 4" in notice
    assert "\n5000\n" in f"{notice}\n"


async def _restart_gateway(
    where: str,
    folder: Path,
    app: App,
    clock: FakeClock,
    started: tuple[str, str, str],
    before: tertulia.Session | None,
) -> None:
    async with aio.open(where, settings=SETTINGS, clock=clock) as store:
        registry = ProcessRegistry(store.sync, folder)
        gateway = Gateway(store, Echo(), [app], processes=registry)
        serving = asyncio.create_task(gateway.run())
        await wait_until_async(lambda: len(app.to(ANA)) > 1 and app.to(BEN), "both were told")
        try:
            await asyncio.to_thread(_check_programs, registry, store.sync, clock, started, before)
        finally:
            gateway.stop()
            await serving
            for process_id in started:
                await asyncio.to_thread(registry.remove, process_id)


def _check_programs(
    registry: ProcessRegistry,
    store: tertulia.Store,
    clock: FakeClock,
    started: tuple[str, str, str],
    before: tertulia.Session | None,
) -> None:
    lasting, ending, asking = started
    assert [registry.get(process_id).state for process_id in started] == [
        "running",
        "exited",
        "running",
    ]
    # Without a running program, its session would have ended by now.
    clock.forward(hours=2)
    session = store.sessions.open(ANA)
    assert before is not None
    assert session.id == before.id
    bens = store.sessions.current(store.sessions.key(BEN))
    assert bens is not None
    assert store.sessions.open(BEN).id != bens.id  # whose program has ended
    assert registry.log(lasting).output.text == "step 1\nstep 2\nstep 3\n"
    whole = "begun\n" + "".join(f"{n}\n" for n in range(1, 5001))
    assert registry.log(ending, after=0).output.text == whole[:10_000]
    assert registry.log(ending).output.text == whole[-10_000:]
    assert registry.log(ending).output.total == len(whole)
    # They still accept input, also the one with a terminal.
    registry.submit(lasting)
    assert registry.wait(lasting, TIMEOUT_SECONDS).output.text.endswith("the end\n")
    registry.submit(asking, "Ana")
    status = registry.wait(asking, TIMEOUT_SECONDS)
    assert "hello Ana" in status.output.text
    assert status.process.exit_code == 0
