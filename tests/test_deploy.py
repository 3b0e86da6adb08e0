"""The unit and the container file name what exists."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from tertulia.config.http_schema import HttpConfig
from tertulia.config.schema import GatewayConfig

ROOT = Path(__file__).resolve().parent.parent
UNIT = ROOT / "deploy/tertulia.service"
CONTAINER = (ROOT / "deploy/Containerfile").read_text("utf-8")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_takes_the_unit() -> None:
    done = subprocess.run(
        ["systemd-analyze", "verify", str(UNIT)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_unit_waits_for_the_drain() -> None:
    found = re.search(r"^TimeoutStopSec=(\d+)$", UNIT.read_text("utf-8"), re.MULTILINE)
    assert found is not None
    assert int(found[1]) > GatewayConfig().drain_seconds


def test_a_restart_leaves_programs_alone() -> None:
    """systemd ends only the gateway itself; tests/processes shows that the rest is found again."""
    assert re.findall(r"^KillMode=(.*)$", UNIT.read_text("utf-8"), re.MULTILINE) == ["process"]


def test_the_container_installs_extras_that_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    found = re.search(r"/source\[([\w,-]+)\]", CONTAINER)
    assert found is not None
    assert {*found[1].split(",")} <= {*project["optional-dependencies"]}


def test_the_container_listens_where_the_gateway_does() -> None:
    port = HttpConfig().port
    assert f"EXPOSE {port}" in CONTAINER
    assert f"http://127.0.0.1:{port}/healthz" in CONTAINER
