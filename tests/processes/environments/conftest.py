"""An SSH server, a fake docker, and a conversation in the environment of a test."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tertulia.processes.environments.base import Environment
from tertulia.processes.environments.docker import DockerContainer
from tests.processes.environments.remote_programs import ssh_host
from tests.processes.process_fixtures import Conversation, open_conversation
from tests.servers.ssh import SshServer, ssh_server

# The parts of docker that are needed here; commands run on this machine, not in a container.
DOCKER = r"""#!/bin/sh
echo "$@" >> "$(dirname "$0")/calls"
verb=$1; shift
case $verb in
exec)
    while case $1 in -*) true ;; *) false ;; esac; do shift; done
    [ "$1" = box ] || { echo "Error response from daemon: No such container: $1" >&2; exit 1; }
    shift
    cd "$(dirname "$0")/inside" && exec env -i PATH="$PATH" "$@" ;;
run)
    while case $1 in -*) true ;; *) false ;; esac; do
        case $1 in --name=*) name=${1#--name=} ;; esac
        shift
    done
    shift
    echo $$ > "$(dirname "$0")/$name"
    exec env -i PATH="$PATH" setsid -w "$@" ;;
version) echo 27.0 ;;
rm)
    file="$(dirname "$0")/$2"
    [ -f "$file" ] || { echo "Error: No such container: $2" >&2; exit 1; }
    pkill -KILL -s "$(pgrep -P "$(cat "$file")" || cat "$file")"; kill -KILL "$(cat "$file")"
    rm "$file"; echo "$2" ;;
ps) exit 0 ;;
esac
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    if shutil.which("ssh") is None:
        pytest.skip("there is no ssh client here")
    with ssh_server(tmp_path_factory.mktemp("there")) as server:
        yield server


@pytest.fixture
def fake_docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a program named docker, first on PATH."""
    folder = tmp_path / "bin"
    (folder / "inside").mkdir(parents=True)
    (folder / "docker").write_text(DOCKER)
    (folder / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


@pytest.fixture(params=["ssh", "docker exec"])
def environment(request: pytest.FixtureRequest) -> Environment:
    if request.param == "ssh":
        return ssh_host(request.getfixturevalue("server"))
    request.getfixturevalue("fake_docker")
    return DockerContainer("box")


@pytest.fixture
def remote(environment: Environment, tmp_path: Path) -> Iterator[Conversation]:
    with open_conversation(
        str(tmp_path / "talk.db"), tmp_path, environment=environment
    ) as conversation:
        yield conversation
