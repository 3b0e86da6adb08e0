"""`tertulia chat` and `tertulia run`: conversations, here and on the platforms."""

from __future__ import annotations

import sys

import click

from tertulia.cli import locations
from tertulia.cli.options import Command, Request
from tertulia.cli.wizard import asked_config


@click.command(cls=Command)
@click.pass_obj
def chat(request: Request) -> None:
    """Talk with the agent in this terminal.

    The agent is the one of the configuration; without one it is the parrot, which shows what an
    agent is given. The conversation goes on where it was left, also after a crash. Lines that are
    piped in are answered one after the other.

    \b
    /help        the commands          ctrl-C   stop the answer under way
    alt-Enter    a new line            ctrl-D   leave
    """
    from tertulia.cli import run

    run.chat(request, locations.config(request))


@click.command(cls=Command)
@click.pass_obj
def run(request: Request) -> None:
    """Serve the platforms of the configuration, and this terminal if there is one.

    Where there is no configuration yet, a few questions make one. SIGTERM and ctrl-C let the
    answers under way finish; what waits is kept for the next start.
    """
    from tertulia.cli import run

    found = locations.config(request)
    has_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if found.path is None and has_terminal:
        asked_config(request)
        found = locations.config(request)
    run.run(request, found.config, has_terminal)
