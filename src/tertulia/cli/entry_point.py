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
from click.shell_completion import shell_complete

from tertulia.cli import errors
from tertulia.cli.bench import bench
from tertulia.cli.chat import (
    chat,
    run,
)
from tertulia.cli.completion import completion
from tertulia.cli.config import config
from tertulia.cli.doctor import doctor
from tertulia.cli.export import export
from tertulia.cli.imports import import_
from tertulia.cli.options import Group
from tertulia.cli.pair import pair
from tertulia.cli.ps import ps
from tertulia.cli.schedules import schedules
from tertulia.cli.sessions import sessions
from tertulia.cli.store import store
from tertulia.cli.usage import usage
from tertulia.version import __version__

NAME = "tertulia"
COMPLETION = "_TERTULIA_COMPLETE"


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
        given = list(sys.argv[1:] if args is None else args)
        instruction = os.environ.get(complete_var or COMPLETION)
        _print_anything()
        if instruction:
            code: int = shell_complete(self, extra, NAME, complete_var or COMPLETION, instruction)
        else:
            with _warnings_told():
                code = self._run(given, extra)
        if not standalone_mode:
            return code
        sys.exit(code)

    def _run(self, given: list[str], extra: dict[str, Any]) -> int:
        """Run a command; the number to end with."""
        try:
            # The name is not that of the script, so that `python -m tertulia` is told the same.
            with self.make_context(NAME, list(given), **extra) as ctx:
                self.invoke(ctx)
            sys.stdout.flush()
        except click.exceptions.Exit as ended:
            return ended.exit_code
        except (click.Abort, KeyboardInterrupt):
            click.echo(err=True)  # ends the line on which the terminal shows ^C
            return errors.INTERRUPTED
        except BrokenPipeError:
            _stop_printing()
            return errors.PIPE_CLOSED
        except click.exceptions.NoArgsIsHelpError as problem:
            click.echo(problem.format_message(), err=True)
            return errors.USAGE
        except errors.TOLD as problem:
            return _tell(problem, given)
        return errors.OK


@click.group(NAME, cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name=NAME, message="%(prog)s %(version)s")
def main() -> None:
    """The conversation keeper for AI agents that live in chat apps."""


for _command in (
    chat,
    run,
    config,
    pair,
    ps,
    sessions,
    schedules,
    usage,
    export,
    import_,
    store,
    doctor,
    bench,
    completion,
):
    main.add_command(_command)


def _tell(problem: Exception, given: list[str]) -> int:
    if isinstance(problem, OSError):
        _stop_printing()  # where it could not print, it would fail once more at the end
    told = errors.failure(problem)
    told.tell(given)
    return told.exit_code


@contextmanager
def _warnings_told() -> Iterator[None]:
    log, handler = logging.getLogger(NAME), errors.Warnings(logging.WARNING)
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
    """Python flushes once more when it ends, and would complain of that too."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, io.UnsupportedOperation):
        return
