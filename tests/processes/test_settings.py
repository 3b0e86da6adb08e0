"""What is set about programs: what is read, what is refused, and what is safe without a word."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tertulia.config.build import environment_of
from tertulia.config.schema import (
    Config,
    ProcessesConfig,
)
from tertulia.errors import ConfigError
from tertulia.processes.environments.base import HERE
from tests.test_config import given_file, refused


def test_nobody_has_the_tools_unless_it_is_said() -> None:
    given = Config().processes
    assert (given.enabled, given.role) == (False, "owner")
    assert not {"OPENAI_API_KEY", "ANTHROPIC_API_KEY", "SSH_AUTH_SOCK"} & {*given.variables}
    assert environment_of(given, "work") is None


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("", HERE),
        ('[processes.ssh]\ndestination = "ana@there"\nport = 2222', "ssh ana@there"),
        ('[processes.docker]\ncontainer = "box"', "docker container box"),
        ('[processes.docker]\nimage = "python:3.13"', "docker image python:3.13"),
    ],
)
def test_where_programs_run(tmp_path: Path, text: str, name: str) -> None:
    config = given_file(tmp_path, f"[processes]\nenabled = true\n{text}").config
    place = environment_of(config.processes, str(tmp_path))
    assert (HERE if place is None else place.name) == name


def test_paths_are_seen_from_the_file(tmp_path: Path) -> None:
    text = """
[processes.ssh]
destination = "there"
identity = "keys/agent"
known_hosts = "/etc/known"
"""
    ssh = given_file(tmp_path, text).config.processes.ssh
    assert ssh is not None
    assert (ssh.identity, ssh.known_hosts) == (str(tmp_path / "keys/agent"), "/etc/known")
    here = given_file(tmp_path, '[processes]\nfolder = "work"').config.processes
    assert here.folder == str(tmp_path / "work")


@pytest.mark.parametrize(
    ("text", "told"),
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
def test_nonsense_is_refused(tmp_path: Path, text: str, told: str) -> None:
    assert told in str(refused(tmp_path, text))


def test_a_destination_cannot_be_an_option_of_ssh(tmp_path: Path) -> None:
    text = '[processes.ssh]\ndestination = "-oProxyCommand=id"'
    given: ProcessesConfig = given_file(tmp_path, text).config.processes
    with pytest.raises(ConfigError, match="names no host"):
        environment_of(given, "work")


def test_what_needs_no_programs_needs_no_unix() -> None:
    """The gateway and the command line are there without the modules that only a Unix has."""
    without = "import sys; sys.modules.update(dict.fromkeys(('fcntl', 'pty', 'termios')));"
    asked = f"{without} import tertulia.gateway.app, tertulia.cli.ps, tertulia.config.build"
    subprocess.run([sys.executable, "-c", asked], check=True)
