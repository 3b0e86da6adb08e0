"""Environments beyond this machine: another one over SSH, and Docker.

The keeper runs `ssh` or `docker` here, which hold the connection, so programs there outlive a
gateway just as those here do. What they leave behind there is found by the variable that all of
them carry: ending them is a few lines of shell, run there. That needs `sh`, `grep` and a /proc as
Linux has it, and does not find a program that wipes its environment. `docker run` needs none of
this, because the whole container is the program's.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from tertulia.errors import ConfigError
from tertulia.processes.environments.base import (
    Command,
    Launch,
    checked,
    inherited,
)
from tertulia.processes.settings import DOCKER_OPTIONS
from tertulia.processes.supervisor import VARIABLE

# What ssh and docker need of the gateway's variables, for themselves; the programs get none.
_NEEDED: Final = ("PATH", "HOME", "USER", "LOGNAME", "SSH_AUTH_SOCK", "DOCKER_HOST",
                  "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_CERT_PATH",
                  "DOCKER_TLS_VERIFY")  # fmt: skip
_CONNECT_SECONDS = 10
_ALIVE_SECONDS = 15

# Arguments: the folder, the folder within it, then the program. The check is made there, after all
# links were followed; 126 is what a shell says of what may not be run.
_BEGIN: Final = r"""
mkdir -p -- "$1" && cd -- "$1" || exit 126
root=$(pwd -P)
cd -- "$2" || exit 126
case "$(pwd -P)/" in
"${root%/}/"*) ;;
*) echo "The folder $2 lies outside of $root." >&2; exit 126 ;;
esac
shift 2
exec env "$@"
"""
_SHELL: Final = 'exec "$(command -v bash || command -v sh)" -c "$0"'

# Whoever carries the id is asked to go, then made to. It is looked for again and again, because
# some may be starting others at that moment. It says how many there were.
_END: Final = r"""
[ -r /proc/self/environ ] || { echo "There is no /proc, so programs cannot be found." >&2; exit 3; }
found() { grep -ls -- "$0" /proc/[0-9]*/environ | cut -d / -f 3; }
first=$(found)
[ -n "$first" ] || { echo 0; exit 0; }
kill -TERM $first 2>/dev/null
n=0
while [ $n -lt 20 ] && [ -n "$(found)" ]; do sleep 0.1; n=$((n + 1)); done
n=0
while left=$(found); [ -n "$left" ] && [ $n -lt 50 ]; do
    kill -KILL $left 2>/dev/null
    sleep 0.05
    n=$((n + 1))
done
[ -z "$(found)" ] || { echo "Some of it cannot be ended." >&2; exit 4; }
set -- $first
echo $#
"""

# A container that has ended is gone already, which is no failure; whether one is left is asked.
_REMOVE: Final = r"""
removed=$("$0" rm --force "$1" 2>/dev/null)
left=$("$0" ps --all --quiet --filter "name=^$1\$") || exit 3
[ -z "$left" ] || { echo "The container $1 cannot be ended." >&2; exit 4; }
[ -n "$removed" ] && echo 1 || echo 0
"""


class SshHost:
    """Programs run on another machine, which the system's `ssh` reaches.

    `destination` is what ssh takes: a name of its configuration, or user@host. Nobody is there to
    answer questions: the key is one that needs no password, or is held by an agent, and the host is
    known. `folder` is seen from the home folder there, and made if it is missing.
    """

    def __init__(
        self,
        destination: str,
        *,
        folder: str = ".",
        port: int | None = None,
        identity: str | None = None,
        known_hosts: str | None = None,
    ) -> None:
        if not re.fullmatch(r"[^-\s][^\s]*", destination):
            raise ConfigError(
                f"{destination!r} names no host.", hint="Give user@host.", field="destination"
            )
        self.name = f"ssh {destination}"
        self._destination = destination
        self._folder = folder
        self._port = port
        self._identity = identity
        self._known_hosts = known_hosts

    def launch(
        self,
        command: Command,
        *,
        process_id: str,
        cwd: str | None,
        variables: Mapping[str, str],
        pty: bool,
    ) -> Launch:
        words = _there(command, process_id, self._folder, cwd, variables)
        # Twice: it is to have a terminal there, also where ssh would rather not.
        argv = [*self._ssh("-tt" if pty else "-T"), f"exec {shlex.join(words)}"]
        place = f"{self._destination}:{os.path.join(self._folder, cwd or '')}"
        return _local(argv, process_id, place, pty=pty)

    def probe(self) -> Launch | None:
        return _local([*self._ssh("-T"), "true"])

    def ending(self, process_id: str) -> Launch | None:
        words = shlex.join(["sh", "-c", _END, f"{VARIABLE}={process_id}"])
        return _local([*self._ssh("-T"), words])

    def remark(self, exit_code: int | None) -> str:
        if exit_code != 255:
            return ""
        return (
            f"The connection to {self._destination} may have been lost (ssh says so with 255); then"
            " the program may still be running there: kill ends it."
        )

    def _ssh(self, terminal: str) -> list[str]:
        options = {
            "BatchMode": "yes",
            "StrictHostKeyChecking": "yes",
            "ConnectTimeout": _CONNECT_SECONDS,
            "ServerAliveInterval": _ALIVE_SECONDS,
            "ClearAllForwardings": "yes",
            "ForwardAgent": "no",
            "EscapeChar": "none",
        }
        if self._known_hosts is not None:
            options["UserKnownHostsFile"] = os.path.expanduser(self._known_hosts)
            options["GlobalKnownHostsFile"] = os.devnull
        if self._identity is not None:
            options["IdentityFile"] = os.path.expanduser(self._identity)
            options["IdentitiesOnly"] = "yes"
        if self._port is not None:
            options["Port"] = self._port
        given = [f"-o{name}={value}" for name, value in options.items()]
        return ["ssh", *given, terminal, "--", self._destination]


class DockerContainer:
    """Programs run in a container that is there already, each by `docker exec`."""

    def __init__(self, container: str, *, folder: str = ".", docker: str = "docker") -> None:
        self.name = f"docker container {_named(container)}"
        self._container = container
        self._folder = folder
        self._docker = docker

    def launch(
        self,
        command: Command,
        *,
        process_id: str,
        cwd: str | None,
        variables: Mapping[str, str],
        pty: bool,
    ) -> Launch:
        words = _there(command, process_id, self._folder, cwd, variables)
        argv = [self._docker, "exec", "-i", *(["-t"] if pty else []), self._container, *words]
        place = f"{self._container}:{os.path.join(self._folder, cwd or '')}"
        return _local(argv, process_id, place, pty=pty)

    def probe(self) -> Launch | None:
        return _local([self._docker, "exec", self._container, "true"])

    def ending(self, process_id: str) -> Launch | None:
        script = ["sh", "-c", _END, f"{VARIABLE}={process_id}"]
        return _local([self._docker, "exec", self._container, *script])

    def remark(self, exit_code: int | None) -> str:
        return ""


class DockerImage:
    """Every program gets a container of its own, by `docker run`; ending it ends all of it.

    Unless `options` say otherwise it has no network and no privileges. `folder` is one of this
    machine: it is all of it that programs there can see, as /work.
    """

    def __init__(
        self,
        image: str,
        *,
        folder: str,
        options: Sequence[str] = DOCKER_OPTIONS,
        docker: str = "docker",
    ) -> None:
        self.name = f"docker image {_named(image)}"
        self._image = image
        self._folder = os.path.realpath(os.path.expanduser(folder))
        self._options = options
        self._docker = docker

    def launch(
        self,
        command: Command,
        *,
        process_id: str,
        cwd: str | None,
        variables: Mapping[str, str],
        pty: bool,
    ) -> Launch:
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        argv = [
            *(self._docker, "run", "--rm", "--init", "-i", *(["-t"] if pty else [])),
            f"--name={_container(process_id)}",
            f"--user={os.getuid()}:{os.getgid()}",
            f"--mount=type=bind,source={self._folder},target=/work",
            *self._options,
            self._image,
            *_there(command, process_id, "/work", cwd, variables),
        ]
        place = f"{self._image}:{os.path.join('/work', cwd or '')}"
        return _local(argv, process_id, place, pty=pty)

    def probe(self) -> Launch | None:
        return _local([self._docker, "version", "--format={{.Server.Version}}"])

    def ending(self, process_id: str) -> Launch | None:
        return _local(["sh", "-c", _REMOVE, self._docker, _container(process_id)])

    def remark(self, exit_code: int | None) -> str:
        return "Docker itself could not run it (125)." if exit_code == 125 else ""


def _there(
    command: Command, process_id: str, folder: str, cwd: str | None, variables: Mapping[str, str]
) -> list[str]:
    """The words that run a command in another place: within its folder, with its variables."""
    words = checked(command)
    program = ["sh", "-c", _SHELL, *words] if isinstance(command, str) else words
    given = {**variables, VARIABLE: process_id}
    for name in given:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ConfigError(f"{name!r} is no name of a variable.", field="variables")
    named = [f"{name}={value}" for name, value in given.items()]
    return ["sh", "-c", _BEGIN, "sh", folder, cwd or ".", *named, *program]


def _local(
    argv: list[str], process_id: str | None = None, place: str = "", *, pty: bool = False
) -> Launch:
    """A program of this machine that reaches the other place."""
    variables = inherited(_NEEDED)
    if process_id is not None:
        variables[VARIABLE] = process_id
    if pty:
        variables["TERM"] = "xterm-256color"
    return Launch(argv, "/", variables, place)


def _container(process_id: str) -> str:
    return f"tertulia-{process_id}"


def _named(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][^\s]*", name):
        raise ConfigError(f"{name!r} is no name that Docker knows.", field="docker")
    return name
