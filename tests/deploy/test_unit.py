"""The systemd unit and the container file agree with the package."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from tertulia.cli.locations import data_folder, default_store_path
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


def _environment() -> dict[str, str]:
    lines = re.findall(r"^Environment=(.*)$", UNIT.read_text("utf-8"), re.MULTILINE)
    assignments = [word.partition("=") for line in lines for word in line.split()]
    return {name: value for name, _, value in assignments}


def test_unit_finds_its_store_in_the_folder_that_systemd_makes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("XDG_DATA_HOME", "XDG_STATE_HOME", "HOME"):
        monkeypatch.setenv(name, _environment()[name])
    assert "StateDirectory=tertulia\n" in UNIT.read_text("utf-8")
    assert default_store_path() == "/var/lib/tertulia/talk.db"
    assert data_folder() == "/var/lib/tertulia"


def test_unit_finds_the_program_that_the_documentation_installs() -> None:
    folder, *_ = _environment()["PATH"].split(":")
    page = (ROOT / "docs/deployment.md").read_text("utf-8")
    assert f"{folder}/pip install '.[all]'" in page
    assert f"{folder}/pip install '.[all]'" in UNIT.read_text("utf-8")


@pytest.mark.parametrize("limit", ["MemoryMax", "TasksMax", "LimitNOFILE"])
def test_unit_sets_a_limit(limit: str) -> None:
    assert re.search(rf"^{limit}=\d", UNIT.read_text("utf-8"), re.MULTILINE)


def test_container_has_everything_and_its_store_on_the_volume(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert "'/source[all]'" in CONTAINER
    match = re.search(r"XDG_DATA_HOME=(\S+)", CONTAINER)
    assert match is not None
    monkeypatch.setenv("XDG_DATA_HOME", match[1])
    assert default_store_path() == "/data/tertulia/talk.db"
    assert "VOLUME /data" in CONTAINER


def test_documentation_names_both_files() -> None:
    page = (ROOT / "docs/deployment.md").read_text("utf-8")
    assert "deploy/tertulia.service" in page
    assert "deploy/Containerfile" in page


def test_documented_container_gets_every_variable_of_its_configuration() -> None:
    section = (ROOT / "docs/deployment.md").read_text("utf-8").partition("\n## Container\n")[2]
    section = section.partition("\n## ")[0]
    variables = re.findall(r'_env = "(\w+)"', section)
    assert variables
    assert {*variables} <= {*re.findall(r" -e (\w+)", section)}


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


def test_keys_do_not_stand_in_the_environment_of_the_unit() -> None:
    """Programs of the same user can read the environment in /proc."""
    text = UNIT.read_text("utf-8")
    assert re.search(r"^LoadCredential=credentials:/etc/tertulia/credentials$", text, re.MULTILINE)
    assert "EnvironmentFile" not in text
    assert not [name for name in _environment() if re.search("KEY|TOKEN|SECRET|PASS", name)]
    assert "/etc/tertulia/credentials" in (ROOT / "docs/deployment.md").read_text("utf-8")
