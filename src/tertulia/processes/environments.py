"""Where programs run. An environment says how a command is started; the keeper does the rest.

An environment promises:

1.  **It only says.** `launch` starts nothing; it gives the program to be run on this machine, which
    may be one that reaches another place.
2.  **It keeps within its folder.** A working directory outside of what it was given is refused.
3.  **It gives away nothing.** Of the gateway's environment variables only those that were named
    reach the program.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from tertulia.errors import AccessDenied, ConfigError, NotFound

Command = str | Sequence[str]
"""A line for the shell, or a program with its arguments."""


class Launch(NamedTuple):
    """A program as this machine is to run it."""

    argv: list[str]
    cwd: str
    variables: dict[str, str]


class Environment(Protocol):
    """A place where programs run; the promises stand at the head of this module."""

    name: str

    def launch(self, command: Command, *, cwd: str | None, variables: Mapping[str, str]) -> Launch:
        """How a command is started there."""
        ...


class ThisMachine:
    """Programs run here, as the user of the gateway, from a folder of theirs.

    The folder is where they begin, not a wall: a program can read whatever that user can.
    """

    name = "this machine"

    def __init__(self, folder: str, *, passed: Collection[str]) -> None:
        self._folder = os.path.realpath(os.path.expanduser(folder))
        self._passed = passed

    def launch(self, command: Command, *, cwd: str | None, variables: Mapping[str, str]) -> Launch:
        inherited = {name: os.environ[name] for name in self._passed if name in os.environ}
        return Launch(_argv(command), self._within(cwd), {**inherited, **variables})

    def _within(self, cwd: str | None) -> str:
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        wanted = os.path.realpath(os.path.join(self._folder, os.path.expanduser(cwd or ".")))
        if os.path.commonpath((self._folder, wanted)) != self._folder:
            raise AccessDenied(
                f"The folder {cwd!r} lies outside of {self._folder}.",
                hint="Give a folder inside of it, or set processes.folder.",
            )
        if not os.path.isdir(wanted):
            raise NotFound(f"There is no folder {cwd!r}.", hint="Make it first: mkdir -p.")
        return wanted


def _argv(command: Command) -> list[str]:
    words = [command] if isinstance(command, str) else list(command)
    if not words or not words[0].strip() or any("\0" in word for word in words):
        raise ConfigError(
            "There is no command.", hint="Give a line for the shell.", field="command"
        )
    return [shutil.which("bash") or "/bin/sh", "-c", *words] if isinstance(command, str) else words
