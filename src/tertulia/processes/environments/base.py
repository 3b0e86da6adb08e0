"""The environment interface: how commands are started on a machine; the supervisor does the rest.

An environment promises:

1.  **It starts nothing itself.** It returns commands for this machine; such a command may be a
    client that connects to another machine.
2.  **It stays within its folder.** A working directory outside of its folder is refused.
3.  **It leaks nothing.** Only the named environment variables of the gateway reach a program, and
    none at all leave this machine.
4.  **It finds its programs.** Everything that was started there under an id can be terminated by
    that id, also after the connection was lost.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from tertulia.errors import ConfigError

Command = str | Sequence[str]
"""A command line for the shell, or a program with its arguments."""


class Program(NamedTuple):
    """A program to start: its command, its working directory and its environment variables."""

    command: Command
    process_id: str
    cwd: str | None
    variables: Mapping[str, str]
    pty: bool


class Launch(NamedTuple):
    """A command that this machine runs; `display_folder` is its folder as shown to people."""

    argv: list[str]
    cwd: str
    variables: dict[str, str]
    display_folder: str = ""


class Environment(Protocol):
    """A machine that runs programs; the promises are in the docstring of this module."""

    name: str
    """Its name in the store, which identifies it after a restart."""

    def launch(self, program: Program) -> Launch:
        """Return the launch that starts a program there."""
        ...

    def probe_launch(self) -> Launch | None:
        """Return a launch that succeeds if the environment is reachable; None if it always is."""
        ...

    def kill_launch(self, process_id: str) -> Launch | None:
        """Return a launch that kills all processes with an id there; None for this machine."""
        ...

    def explain_exit(self, exit_code: int | None) -> str:
        """Return a remark if an exit code may not come from the program itself, else ""."""
        ...


def inherited_variables(names: Collection[str]) -> dict[str, str]:
    """Return those of the named environment variables that the gateway has."""
    return {name: os.environ[name] for name in names if name in os.environ}


def command_words(command: Command) -> list[str]:
    """Return a command as words; raise `ConfigError` if it is empty or has a null byte.

    A command line for the shell is one word.
    """
    words = [command] if isinstance(command, str) else list(command)
    if not words or not words[0].strip() or any("\0" in word for word in words):
        raise ConfigError(
            "There is no command.", hint="Give a command line for the shell.", field="command"
        )
    return words
