"""The systemd unit and the container file agree with the package."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from tertulia.gateway.settings import GatewaySettings
from tertulia.http.settings import HttpSettings

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "deploy/tertulia.service"
CONTAINER = (ROOT / "deploy/Containerfile").read_text("utf-8")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_accepts_the_unit() -> None:
    result = subprocess.run(
        ["systemd-analyze", "verify", str(UNIT)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_unit_waits_for_the_drain() -> None:
    match = re.search(r"^TimeoutStopSec=(\d+)$", UNIT.read_text("utf-8"), re.MULTILINE)
    assert match is not None
    assert int(match[1]) > GatewaySettings().drain_seconds


def test_restart_does_not_kill_processes() -> None:
    """systemd kills only the gateway; tests/processes proves that a new one finds the processes."""
    assert re.findall(r"^KillMode=(.*)$", UNIT.read_text("utf-8"), re.MULTILINE) == ["process"]


def test_container_installs_existing_extras() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    match = re.search(r"/source\[([\w,-]+)\]", CONTAINER)
    assert match is not None
    assert {*match[1].split(",")} <= {*project["optional-dependencies"]}


def test_container_exposes_the_default_port() -> None:
    port = HttpSettings().port
    assert f"EXPOSE {port}" in CONTAINER
    assert f"http://127.0.0.1:{port}/healthz" in CONTAINER


def test_unit_has_descriptors_for_all_connections() -> None:
    match = re.search(r"^LimitNOFILE=(\d+)$", UNIT.read_text("utf-8"), re.MULTILINE)
    assert match is not None
    assert int(match[1]) // 2 >= HttpSettings().connections
