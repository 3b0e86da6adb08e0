"""A gateway is killed with -9 while programs run: nothing of them is lost."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

import tertulia
from tertulia import aio
from tertulia.gateway.app import Gateway
from tertulia.processes import supervisor
from tertulia.processes.registry import ProcessRegistry
from tertulia.testing import FakeClock
from tests.gateway.scene import App, Echo
from tests.processes.scene import ANA, BEN, PATIENCE, SETTINGS, Scene, comes, until
from tests.records.store_inspection import execute


def _killed_host(where: str, folder: Path) -> list[str]:
    """The programs that a gateway had started when it was killed."""
    asked = [sys.executable, "-m", "tests.processes.host", where, str(folder)]
    with subprocess.Popen(asked, stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        started = host.stdout.readline().split()
        host.send_signal(signal.SIGKILL)
        host.wait()
    assert len(started) == 3
    return started


def test_a_killed_gateway_loses_no_program(where: str, tmp_path: Path) -> None:
    folder = tmp_path / "programs"
    lasting, ending, asking = _killed_host(where, folder)
    with tertulia.open(where, settings=SETTINGS) as store:
        before = store.sessions.current(store.sessions.key(ANA))
        # While no gateway is there, one of them ends.
        (folder / "flag").touch()
        ended = os.path.join(store.processes.require(ending).folder, supervisor.ENDED)
        until(lambda: os.path.exists(ended), "it has ended")
    app = App()
    clock = FakeClock(datetime.now(UTC))
    asyncio.run(_again(where, folder, app, clock, (lasting, ending, asking), before))
    assert sum(f"{lasting} " in text and "still running" in text for text in app.to(ANA)) == 1
    assert sum(f"{asking} " in text and "still running" in text for text in app.to(ANA)) == 1
    [told] = app.to(BEN)
    assert f"{ending} " in told
    assert "exit code 4" in told
    assert "\n5000\n" in told


async def _again(
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
        await comes(lambda: len(app.to(ANA)) > 1 and app.to(BEN), "both were told")
        try:
            await asyncio.to_thread(_check, registry, store.sync, clock, started, before)
        finally:
            gateway.stop()
            await serving
            for one in started:
                await asyncio.to_thread(registry.remove, one)


def _check(
    registry: ProcessRegistry,
    store: tertulia.Store,
    clock: FakeClock,
    started: tuple[str, str, str],
    before: tertulia.Session | None,
) -> None:
    lasting, ending, asking = started
    assert [registry.get(one).state for one in started] == ["running", "exited", "running"]
    # Its session would have ended by now, had its programs not been known.
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
    # They can still be written to, also the one with a terminal.
    registry.submit(lasting)
    assert registry.wait(lasting, PATIENCE).output.text.endswith("the end\n")
    registry.submit(asking, "Ana")
    seen = registry.wait(asking, PATIENCE)
    assert "hello Ana" in seen.output.text
    assert seen.process.exit_code == 0


def test_one_that_was_being_started_is_found_by_its_folder(scene: Scene) -> None:
    """The gateway was lost after the program had begun, before that was written down."""
    process = scene.spawn("sleep 600")
    known = scene.registry.get(process)
    execute(
        scene.store,
        "update processes set state = 'starting', keeper_pid = 0, keeper_mark = '', pid = 0,"
        " mark = ''",
    )
    [found] = ProcessRegistry(scene.store, scene.registry._folder).recover()
    assert (found.state, found.pid, found.keeper_pid) == ("running", known.pid, known.keeper_pid)


def test_one_that_never_began_is_said_to_be_lost(scene: Scene) -> None:
    """The gateway was lost after it was written down, before the program had begun."""
    known = scene.registry.get(scene.spawn("sleep 600"))
    never = replace(known, id="pnever", folder=f"{known.folder}-never", told_at=known.began_at)
    scene.store.processes.begin(never)
    scene.registry.remove(known.id)
    scene.registry.look()
    assert scene.store.processes.require("pnever").state == "starting"
    assert scene.told() == []
    scene.clock.forward(seconds=61)
    scene.registry.look()
    assert scene.store.processes.require("pnever").state == "lost"
    assert [text for text in scene.told() if "never started" in text] == scene.told() != []


def test_a_lost_keeper_is_said_and_the_output_stays(scene: Scene) -> None:
    process = scene.registry.get(scene.spawn("echo so far; exec sleep 600"))
    scene.shows(process.id, "so far")
    os.kill(process.keeper_pid, signal.SIGKILL)
    until(lambda: supervisor.mark(process.keeper_pid) == "", "the keeper is gone")
    scene.registry.look()
    assert scene.registry.get(process.id).state == "lost"
    [told] = scene.told()
    assert "nobody can say how it ended" in told
    assert "so far" in told
    scene.registry.kill(process.id)
    assert supervisor.mark(process.pid) == ""
