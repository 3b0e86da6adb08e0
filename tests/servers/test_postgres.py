"""The server for tests: how its programs are chosen, copied and ended."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from tests.servers import postgres

PATIENCE = 60.0

# Starts a server, prints its address, and waits to be killed.
_HOLD = """
import sys, time
from tests.servers import postgres
if sys.argv[1] == "input":
    postgres._SERVE = postgres._END_WITH_INPUT
with postgres.own_server() as server:
    print(server.dsn, flush=True)
    time.sleep(600)
"""


def test_named_folder_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "postgres").touch()
    monkeypatch.setenv("TEST_PG_BIN", str(tmp_path))
    assert postgres.programs() == tmp_path


def test_named_folder_without_programs_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TEST_PG_BIN", str(tmp_path))
    with pytest.raises(RuntimeError, match="TEST_PG_BIN"):
        postgres.programs()


def test_wheel_comes_before_an_installed_server(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("TEST_PG_BIN", raising=False)
    monkeypatch.setattr(postgres, "wheel_programs", lambda: tmp_path)
    assert postgres.programs() == tmp_path


def test_newest_installed_server_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for version in ("9.6", "16", "17"):
        folder = tmp_path / version / "bin"
        folder.mkdir(parents=True)
        (folder / "postgres").touch()
    monkeypatch.setattr(postgres, "_INSTALLED", (f"{tmp_path}/*/bin/postgres",))
    assert postgres.installed_programs() == tmp_path / "17" / "bin"


def test_missing_server_names_every_way_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "programs", lambda: None)
    with pytest.raises(RuntimeError) as problem, postgres.own_server():
        pass
    for way in ("TEST_PG_DSN", "TEST_PG_BIN", "make test", "apt-get install postgresql"):
        assert way in str(problem.value)


@pytest.mark.check
@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to drop its rights")
def test_programs_that_the_user_cannot_reach_are_copied(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    original = postgres.wheel_programs()
    if original is None:
        pytest.skip("there is no wheel for this platform")
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    package = original.parents[1]
    shutil.copytree(package, private / package.name, ignore=shutil.ignore_patterns("include"))
    for libraries in package.parent.glob(f"{package.name}.libs"):
        shutil.copytree(libraries, private / libraries.name)
    monkeypatch.setenv("TEST_PG_BIN", str(private / original.relative_to(package.parent)))
    with postgres.own_server() as server, psycopg.connect(server.dsn) as connection:
        assert connection.execute("select 1").fetchone() == (1,)
        assert (server.folder / "programs").is_dir()


@pytest.mark.check
@pytest.mark.parametrize("way", ["thread", "input"])
def test_server_ends_with_the_process_that_started_it(way: str) -> None:
    if way == "thread" and sys.platform != "linux":
        pytest.skip("prctl is Linux only")
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, way], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        dsn = holder.stdout.readline().strip()
        psycopg.connect(dsn).close()
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    folder = Path(str(psycopg.conninfo.conninfo_to_dict(dsn)["host"]))
    try:
        deadline = time.monotonic() + PATIENCE
        while (folder / "data" / "postmaster.pid").exists():
            assert time.monotonic() < deadline, "the server runs on"
            time.sleep(0.05)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
