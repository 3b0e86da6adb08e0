"""The local environment: programs run on the machine of the gateway."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from typing import Final

from tertulia.errors import AccessDenied, NotFound
from tertulia.private_files import make_private_folder
from tertulia.processes.environments.base import (
    Command,
    Launch,
    Program,
    command_words,
    inherited_variables,
)
from tertulia.processes.supervisor import VARIABLE

LOCAL: Final = "here"
"""The name of the local environment in the store."""


class LocalMachine:
    """Programs run on this machine, as the user of the gateway, in a folder.

    The folder is the working directory, not a sandbox: a program can read all that the user can.
    `passed` names the environment variables of the gateway that programs get.
    """

    name = LOCAL

    def __init__(self, folder: str, *, passed: Collection[str]) -> None:
        self._folder = os.path.realpath(os.path.expanduser(folder))
        self._passed = passed

    def launch(self, program: Program) -> Launch:
        """Return the launch of a program; a command line is run by bash, or else by sh."""
        own = {**program.variables, VARIABLE: program.process_id}
        environment = {**inherited_variables(self._passed), **own}
        if program.pty:
            environment.setdefault("TERM", "xterm-256color")
        folder = self._resolve(program.cwd)
        return Launch(_argv(program.command), folder, environment, folder)

    def probe_launch(self) -> Launch | None:
        return None

    def kill_launch(self, process_id: str) -> Launch | None:
        return None

    def explain_exit(self, exit_code: int | None) -> str:
        return ""

    def _resolve(self, cwd: str | None) -> str:
        """Return the absolute path of a working directory; raise if it is outside or missing."""
        make_private_folder(self._folder)
        path = os.path.realpath(os.path.join(self._folder, os.path.expanduser(cwd or ".")))
        if os.path.commonpath((self._folder, path)) != self._folder:
            raise AccessDenied(
                f"The folder {cwd!r} lies outside of {self._folder}.",
                hint="Use a folder inside of it, or set processes.folder.",
            )
        if not os.path.isdir(path):
            raise NotFound(f"There is no folder {cwd!r}.", hint="Create it first: mkdir -p.")
        return path


def _argv(command: Command) -> list[str]:
    words = command_words(command)
    return [shutil.which("bash") or "/bin/sh", "-c", *words] if isinstance(command, str) else words
