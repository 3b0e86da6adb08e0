"""The program: its commands, and what happens to everything that goes wrong in one of them."""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from tertulia.cli import failures
from tertulia.cli.completion import completion
from tertulia.cli.doctor import doctor
from tertulia.cli.options import Group
from tertulia.cli.sessions import sessions
from tertulia.cli.store import store
from tertulia.cli.usage import usage
from tertulia.version import __version__

NAME = "tertulia"


class Program(Group):
    """The group of all commands. It tells errors in one or two lines and never as a traceback."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        given = sys.argv[1:] if args is None else args
        with _warnings_told():
            code = self._run(args, prog_name, complete_var, given, extra)
        if not standalone_mode:
            return code
        sys.exit(code)

    def _run(
        self,
        args: Sequence[str] | None,
        prog_name: str | None,
        complete_var: str | None,
        given: Sequence[str],
        extra: dict[str, Any],
    ) -> int:
        _print_anything()
        try:
            # Not the name of the script: completion finds its variable by this one.
            ended = super().main(
                args, prog_name or NAME, complete_var, standalone_mode=False, **extra
            )
            sys.stdout.flush()
        except (click.Abort, KeyboardInterrupt):
            return failures.INTERRUPTED
        except BrokenPipeError:
            _stop_printing()
            return failures.PIPE_CLOSED
        except click.exceptions.NoArgsIsHelpError as problem:
            click.echo(problem.format_message(), err=True)
            return failures.USAGE
        except Exception as problem:
            told = failures.failure(problem)
            if told is None:
                raise
            told.tell(given)
            return told.exit_code
        return ended if isinstance(ended, int) else failures.OK


@click.group(NAME, cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name=NAME, message="%(prog)s %(version)s")
def main() -> None:
    """The conversation keeper for AI agents that live in chat apps."""


for _command in (sessions, usage, store, doctor, completion):
    main.add_command(_command)


@contextmanager
def _warnings_told() -> Iterator[None]:
    log, handler = logging.getLogger(NAME), failures.Warnings(logging.WARNING)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


def _print_anything() -> None:
    """A name that the terminal's encoding lacks is no reason to fail."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _stop_printing() -> None:
    # Python flushes once more when it ends, and would complain into a closed pipe.
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, io.UnsupportedOperation):
        return
