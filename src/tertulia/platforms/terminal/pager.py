"""Show what is longer than the screen in a pager: $TERTULIA_PAGER, $PAGER, else less.

Answers of the agent never go there: the scrollback is their record (decision 0047).
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

VARIABLE: Final = "TERTULIA_PAGER"
# -F: leave at once if it fits. -R: show colours. -X: leave the text on the screen.
_LESS: Final = ("less", "-FRX")


def pager_command(environ: Mapping[str, str] = os.environ) -> list[str] | None:
    """Return the program that pages, with its arguments; None if nothing is to be paged.

    An empty variable, and `cat`, turn it off.
    """
    for name in (VARIABLE, "PAGER"):
        if name in environ:
            try:
                words = shlex.split(environ[name])
            except ValueError:  # a quote that is not closed
                return None
            return words if words and words[0] != "cat" else None
    return list(_LESS) if shutil.which(_LESS[0]) else None


def pager_environment() -> dict[str, str]:
    """Return the variables for the pager: less shows colours, however it was named."""
    return {"LESS": "FRX", "LESSCHARSET": "utf-8", **os.environ}


def print_paged(text: str) -> None:
    """Print a text: in a pager if standard output is a terminal, and the text longer than it."""
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    is_long = text.count("\n") >= shutil.get_terminal_size().lines
    command = pager_command() if is_terminal and is_long else None
    if command is None or not _page(text, command):
        sys.stdout.write(text)
        sys.stdout.flush()


@contextmanager
def interrupts_to_pager() -> Iterator[None]:
    """Leave ctrl-C to the pager while the block runs: this program goes on when it ends."""
    # A function would not do: an event loop learns of every signal that has one.
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def _page(text: str, command: list[str]) -> bool:
    """Show a text in the pager, and return whether it could be started."""
    try:
        with interrupts_to_pager():
            subprocess.run(  # noqa: S603  the pager of the person
                command, input=text.encode("utf-8", "replace"), env=pager_environment(), check=False
            )
    except OSError:
        return False
    return True
