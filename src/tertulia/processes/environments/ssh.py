"""The SSH environment: programs run on another machine, reached with the `ssh` of the system."""

from __future__ import annotations

import os
import shlex

from tertulia.processes.environments.base import Launch, Program
from tertulia.processes.environments.remote import (
    client_launch,
    kill_argv,
    program_launch,
    remote_argv,
)
from tertulia.processes.settings import SshSettings

_CONNECT_SECONDS = 10
_ALIVE_SECONDS = 15  # of silence, after which ssh asks whether the server is still there


class SshHost:
    """Programs run on another machine, reached with the `ssh` of the system.

    ssh cannot ask questions: the key needs no password or is loaded in an SSH agent, and the host
    is in known_hosts.
    """

    def __init__(self, settings: SshSettings) -> None:
        self.name = f"ssh {settings.destination}"
        self._settings = settings

    def launch(self, program: Program) -> Launch:
        words = remote_argv(program, self._settings.folder)
        # Given twice, -t forces a terminal there although ssh itself has none.
        argv = [*self._ssh("-tt" if program.pty else "-T"), f"exec {shlex.join(words)}"]
        return program_launch(argv, program, self._settings.destination, self._settings.folder)

    def probe_launch(self) -> Launch | None:
        return client_launch([*self._ssh("-T"), "true"])

    def kill_launch(self, process_id: str) -> Launch | None:
        return client_launch([*self._ssh("-T"), shlex.join(kill_argv(process_id))])

    def explain_exit(self, exit_code: int | None) -> str:
        if exit_code != 255:
            return ""
        return (
            f"ssh exits with 255 if the connection to {self._settings.destination} was lost; then"
            " the program may still be running there: kill ends it."
        )

    def _ssh(self, terminal: str) -> list[str]:
        """Return the command of ssh up to its destination; `terminal` is -T or -tt."""
        options = {
            "BatchMode": "yes",
            "StrictHostKeyChecking": "yes",
            "ConnectTimeout": _CONNECT_SECONDS,
            "ServerAliveInterval": _ALIVE_SECONDS,
            "ClearAllForwardings": "yes",
            "ForwardAgent": "no",
            "EscapeChar": "none",
        }
        if self._settings.known_hosts is not None:
            options["UserKnownHostsFile"] = os.path.expanduser(self._settings.known_hosts)
            options["GlobalKnownHostsFile"] = os.devnull
        if self._settings.identity is not None:
            options["IdentityFile"] = os.path.expanduser(self._settings.identity)
            options["IdentitiesOnly"] = "yes"
        if self._settings.port is not None:
            options["Port"] = self._settings.port
        arguments = [f"-o{name}={value}" for name, value in options.items()]
        return ["ssh", *arguments, terminal, "--", self._settings.destination]
