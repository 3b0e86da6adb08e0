"""The Docker environments: one running container, or a new container for each program."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Final

from tertulia.errors import ConfigError
from tertulia.private_files import make_private_folder
from tertulia.processes.environments.base import Launch, Program
from tertulia.processes.environments.remote import (
    client_launch,
    kill_argv,
    program_launch,
    remote_argv,
)
from tertulia.processes.settings import DEFAULT_DOCKER_OPTIONS

# A container that has ended is removed already, which is not an error; so the script checks
# whether the container is left. Prints the number of removed containers.
_REMOVE_SCRIPT: Final = r"""
removed=$("$0" rm --force "$1" 2>/dev/null)
left=$("$0" ps --all --quiet --filter "name=^$1\$") || exit 3
[ -z "$left" ] || { echo "The container $1 could not be removed." >&2; exit 4; }
[ -n "$removed" ] && echo 1 || echo 0
"""


class DockerContainer:
    """Programs run in a container that is already running, each with `docker exec`."""

    def __init__(self, container: str, *, folder: str = ".", docker: str = "docker") -> None:
        self.name = f"docker container {_require_name(container)}"
        self._container = container
        self._folder = folder
        self._docker = docker

    def launch(self, program: Program) -> Launch:
        words = remote_argv(program, self._folder)
        argv = [
            self._docker,
            "exec",
            "-i",
            *(["-t"] if program.pty else []),
            self._container,
            *words,
        ]
        return program_launch(argv, program, self._container, self._folder)

    def probe_launch(self) -> Launch | None:
        return client_launch([self._docker, "exec", self._container, "true"])

    def kill_launch(self, process_id: str) -> Launch | None:
        return client_launch([self._docker, "exec", self._container, *kill_argv(process_id)])

    def explain_exit(self, exit_code: int | None) -> str:
        return ""


class DockerImage:
    """Each program runs in a container of its own, with `docker run`; killing it removes that.

    Unless `options` say otherwise, the container has no network and no privileges. `folder` is a
    folder of this machine, the only one that programs there can see, as /work.
    """

    def __init__(
        self,
        image: str,
        *,
        folder: str,
        options: Sequence[str] = DEFAULT_DOCKER_OPTIONS,
        docker: str = "docker",
    ) -> None:
        self.name = f"docker image {_require_name(image)}"
        self._image = image
        self._folder = os.path.realpath(os.path.expanduser(folder))
        self._options = options
        self._docker = docker

    def launch(self, program: Program) -> Launch:
        make_private_folder(self._folder)
        argv = [
            *(self._docker, "run", "--rm", "--init", "-i", *(["-t"] if program.pty else [])),
            f"--name={_container_name(program.process_id)}",
            f"--user={os.getuid()}:{os.getgid()}",
            f"--mount=type=bind,source={self._folder},target=/work",
            *self._options,
            self._image,
            *remote_argv(program, "/work"),
        ]
        return program_launch(argv, program, self._image, "/work")

    def probe_launch(self) -> Launch | None:
        return client_launch([self._docker, "version", "--format={{.Server.Version}}"])

    def kill_launch(self, process_id: str) -> Launch | None:
        name = _container_name(process_id)
        return client_launch(["sh", "-c", _REMOVE_SCRIPT, self._docker, name])

    def explain_exit(self, exit_code: int | None) -> str:
        return "Docker itself could not run it (125)." if exit_code == 125 else ""


def _container_name(process_id: str) -> str:
    return f"tertulia-{process_id}"


def _require_name(name: str) -> str:
    """Return a name of a container or image; raise `ConfigError` if docker would refuse it."""
    if not re.fullmatch(r"[A-Za-z0-9][^\s]*", name):
        raise ConfigError(
            f"Invalid name of a Docker container or image: {name!r}.",
            hint="Use a name that begins with a letter or digit, without spaces.",
            field="docker",
        )
    return name
