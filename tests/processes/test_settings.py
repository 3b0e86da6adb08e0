"""The settings of programs: defaults, environments, and values that are refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tertulia.config.build import build_environment
from tertulia.config.schema import Config
from tertulia.processes.environments.local import LOCAL
from tests.config.config_file import load_error, load_text


def test_tools_are_disabled_by_default() -> None:
    config = Config().processes
    assert (config.enabled, config.role) == (False, "owner")
    assert not {"OPENAI_API_KEY", "ANTHROPIC_API_KEY", "SSH_AUTH_SOCK"} & {*config.variables}
    assert build_environment(config, "work") is None


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("", LOCAL),
        ('[processes.ssh]\ndestination = "ana@there"\nport = 2222', "ssh ana@there"),
        ('[processes.docker]\ncontainer = "box"', "docker container box"),
        ('[processes.docker]\nimage = "python:3.13"', "docker image python:3.13"),
    ],
)
def test_environment_from_the_configuration(tmp_path: Path, text: str, name: str) -> None:
    config = load_text(tmp_path, f"[processes]\nenabled = true\n{text}").config
    environment = build_environment(config.processes, str(tmp_path))
    assert (LOCAL if environment is None else environment.name) == name


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    text = """
[processes.ssh]
destination = "there"
identity = "keys/agent"
known_hosts = "/etc/known"
"""
    ssh = load_text(tmp_path, text).config.processes.ssh
    assert ssh is not None
    assert (ssh.identity, ssh.known_hosts) == (str(tmp_path / "keys/agent"), "/etc/known")
    here = load_text(tmp_path, '[processes]\nfolder = "work"').config.processes
    assert here.folder == str(tmp_path / "work")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[processes.docker]", "needs a container or an image"),
        (
            '[processes.docker]\ncontainer = "a"\nimage = "b"',
            "needs a container or an image",
        ),
        (
            '[processes.ssh]\ndestination = "a"\n[processes.docker]\nimage = "b"',
            "run in one place",
        ),
        ('[processes]\nfolder = "a"\n[processes.ssh]\ndestination = "b"', "where nothing is run"),
        ("[processes.ssh]\nport = 22", "destination"),
        ('[processes.ssh]\ndestination = "a"\nport = 0', "port"),
        ('[processes]\nrole = "everybody"', "role"),
        ("[processes]\nat_most = 0", "at_most"),
        ("[processes]\nenabeld = true", "enabeld"),
    ],
)
def test_invalid_settings_are_refused(tmp_path: Path, text: str, message: str) -> None:
    assert message in str(load_error(tmp_path, text))


def test_ssh_destination_cannot_be_an_option(tmp_path: Path) -> None:
    problem = load_error(tmp_path, '[processes.ssh]\ndestination = "-oProxyCommand=id"')
    assert "names no host" in problem.message
    assert "line 2: processes.ssh.destination" in problem.message


def test_modules_import_without_unix_modules() -> None:
    """The gateway and the command line import without fcntl, pty and termios."""
    without = "import sys; sys.modules.update(dict.fromkeys(('fcntl', 'pty', 'termios')));"
    program = f"{without} import tertulia.gateway.app, tertulia.cli.ps, tertulia.config.build"
    subprocess.run([sys.executable, "-c", program], check=True)
