"""Where programs run. An environment says how a command is started there; the keeper does the rest.

An environment promises:

1.  **It only says.** It starts nothing itself; what it gives are programs for this machine, which
    may be ones that reach another place.
2.  **It keeps within its folder.** A working directory outside of what it was given is refused.
3.  **It gives away nothing.** Of the gateway's environment variables only those that were named
    reach a program, and none at all leave this machine.
4.  **It knows its own.** What was started there with an id can be ended by that id, also after the
    connection to it was lost.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from tertulia.errors import AccessDenied, ConfigError, NotFound
from tertulia.processes.supervisor import VARIABLE

HERE: Final = "here"

Command = str | Sequence[str]
"""A line for the shell, or a program with its arguments."""


class Launch(NamedTuple):
    """A program as this machine is to run it; `place` is the folder as people are told it."""

    argv: list[str]
    cwd: str
    variables: dict[str, str]
    place: str = ""


class Environment(Protocol):
    """A place where programs run; the promises stand at the head of this module."""

    name: str
    """What it is called in the store: there it is found again after a restart."""

    def launch(
        self,
        command: Command,
        *,
        process_id: str,
        cwd: str | None,
        variables: Mapping[str, str],
        pty: bool,
    ) -> Launch:
        """How a command is started there."""
        ...

    def probe(self) -> Launch | None:
        """What succeeds if the place can be reached now; None where it always can."""
        ...

    def ending(self, process_id: str) -> Launch | None:
        """What ends everything that was started there with an id; None where that is here."""
        ...

    def remark(self, exit_code: int | None) -> str:
        """What is to be said of an exit code that is not, or may not be, the program's own."""
        ...


class LocalMachine:
    """Programs run here, as the user of the gateway, from a folder of theirs.

    The folder is where they begin, not a wall: a program can read whatever that user can.
    """

    name = HERE

    def __init__(self, folder: str, *, passed: Collection[str]) -> None:
        self._folder = os.path.realpath(os.path.expanduser(folder))
        self._passed = passed

    def launch(
        self,
        command: Command,
        *,
        process_id: str,
        cwd: str | None,
        variables: Mapping[str, str],
        pty: bool,
    ) -> Launch:
        given = {**inherited(self._passed), **variables, VARIABLE: process_id}
        if pty:
            given.setdefault("TERM", "xterm-256color")
        place = self._within(cwd)
        return Launch(_argv(command), place, given, place)

    def probe(self) -> Launch | None:
        return None

    def ending(self, process_id: str) -> Launch | None:
        return None

    def remark(self, exit_code: int | None) -> str:
        return ""

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


def inherited(passed: Collection[str]) -> dict[str, str]:
    """Those variables of the gateway that a program on this machine is given."""
    return {name: os.environ[name] for name in passed if name in os.environ}


def checked(command: Command) -> list[str]:
    """The words of a command, which has some."""
    words = [command] if isinstance(command, str) else list(command)
    if not words or not words[0].strip() or any("\0" in word for word in words):
        raise ConfigError(
            "There is no command.", hint="Give a line for the shell.", field="command"
        )
    return words


def _argv(command: Command) -> list[str]:
    words = checked(command)
    return [shutil.which("bash") or "/bin/sh", "-c", *words] if isinstance(command, str) else words
