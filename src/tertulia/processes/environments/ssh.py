"""The SSH environment: programs run on another machine, reached with the `ssh` of the system."""

from __future__ import annotations

import os
import re
import shlex

from tertulia.errors import ConfigError
from tertulia.processes.environments.base import Launch, Program
from tertulia.processes.environments.remote import (
    client_launch,
    kill_argv,
    program_launch,
    remote_argv,
)

_CONNECT_SECONDS = 10
_ALIVE_SECONDS = 15


class SshHost:
    """Programs run on another machine, reached with the `ssh` of the system.

    `destination` is an argument of ssh: a name from its configuration, or user@host. ssh cannot ask
    questions: the key needs no password or is loaded in an SSH agent, and the host is in
    known_hosts. `folder` is relative to the home folder there, and is created if it is missing.
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
                f"Invalid SSH destination {destination!r}: it names no host.",
                hint="Use user@host, or a name of the SSH configuration.",
                field="destination",
            )
        self.name = f"ssh {destination}"
        self._destination = destination
        self._folder = folder
        self._port = port
        self._identity = identity
        self._known_hosts = known_hosts

    def launch(self, program: Program) -> Launch:
        words = remote_argv(program, self._folder)
        # Given twice, -t forces a terminal there although ssh itself has none.
        argv = [*self._ssh("-tt" if program.pty else "-T"), f"exec {shlex.join(words)}"]
        return program_launch(argv, program, self._destination, self._folder)

    def probe_launch(self) -> Launch | None:
        return client_launch([*self._ssh("-T"), "true"])

    def kill_launch(self, process_id: str) -> Launch | None:
        return client_launch([*self._ssh("-T"), shlex.join(kill_argv(process_id))])

    def explain_exit(self, exit_code: int | None) -> str:
        if exit_code != 255:
            return ""
        return (
            f"ssh exits with 255 if the connection to {self._destination} was lost; then the"
            " program may still be running there: kill ends it."
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
        arguments = [f"-o{name}={value}" for name, value in options.items()]
        return ["ssh", *arguments, terminal, "--", self._destination]
