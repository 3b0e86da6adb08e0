"""The program: its commands, and the handling of every error that a command raises."""

from __future__ import annotations

import io
import logging
import os
import re
import sys
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import click
from click.shell_completion import shell_complete

from tertulia import __version__
from tertulia.cli import errors, output
from tertulia.cli.ask import ask
from tertulia.cli.bench import bench
from tertulia.cli.chat import chat
from tertulia.cli.completion import completion
from tertulia.cli.config import config
from tertulia.cli.console import console
from tertulia.cli.deliveries import deliveries
from tertulia.cli.doctor import doctor
from tertulia.cli.export import export
from tertulia.cli.import_ import import_
from tertulia.cli.mcp import mcp
from tertulia.cli.options import NAME, CommandGroup
from tertulia.cli.pair import pair
from tertulia.cli.people import people
from tertulia.cli.platforms import platforms
from tertulia.cli.ps import ps
from tertulia.cli.run import run
from tertulia.cli.schedules import schedules
from tertulia.cli.sessions import sessions
from tertulia.cli.store import store
from tertulia.cli.usage import usage

COMPLETION_VARIABLE = "_TERTULIA_COMPLETE"


# The groups of `--help`, in their order; what a newcomer needs comes first.
COMMAND_GROUPS = {
    "Talk": ("chat", "ask", "run", "console"),
    "Set up": ("config", "platforms", "mcp", "doctor", "completion"),
    "Conversations": ("sessions", "schedules", "usage", "deliveries", "ps"),
    "People": ("pair", "people"),
    "Store": ("store", "import", "export", "bench"),
}


class RootGroup(CommandGroup):
    """The group of all commands. It prints expected errors in one or two lines, no traceback."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands in groups."""
        width = max(map(len, self.commands))
        for group, names in COMMAND_GROUPS.items():
            with formatter.section(group):
                formatter.write_dl(
                    [
                        (name.ljust(width), self.commands[name].get_short_help_str())
                        for name in names
                    ]
                )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of the line; an error names the command that has this name."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as problem:
            paths = [
                f"'{group} {args[0]}'"
                for names in COMMAND_GROUPS.values()
                for group in names
                if args[0] in getattr(self.commands[group], "commands", ())
            ]
            if not paths:
                raise
            text = f"No such command {args[0]!r}. Did you mean {' or '.join(paths)}?"
            raise click.UsageError(text, problem.ctx) from None

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        words = list(sys.argv[1:] if args is None else args)
        variable = complete_var or COMPLETION_VARIABLE
        instruction = os.environ.get(variable)
        _open_missing_streams()
        _replace_unencodable_characters()
        load_credentials(os.environ)
        if instruction:
            code: int = shell_complete(self, extra, NAME, variable, instruction)
        else:
            with _print_warnings():
                code = self._run(words, extra)
        if not standalone_mode:
            return code
        sys.exit(code)

    def _run(self, args: list[str], extra: dict[str, Any]) -> int:
        """Run a command and return the exit code."""
        try:
            # Not the name of the script, so that `python -m tertulia` prints the same texts.
            with self.make_context(NAME, list(args), **extra) as ctx:
                self.invoke(ctx)
            sys.stdout.flush()
        except click.exceptions.Exit as problem:
            return problem.exit_code
        except (click.Abort, KeyboardInterrupt):
            click.echo(err=True)  # ends the line on which the terminal shows ^C
            return errors.INTERRUPTED
        except BrokenPipeError:
            output.discard_output()
            return errors.PIPE_CLOSED
        except click.exceptions.NoArgsIsHelpError as problem:
            click.echo(problem.format_message(), err=True)
            return errors.USAGE
        except errors.EXPECTED_ERRORS as problem:
            return _report(problem, args)
        return errors.OK


@click.group(NAME, cls=RootGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name=NAME, message="%(prog)s %(version)s")
def main() -> None:
    """Keep the conversations of AI agents that live in chat apps."""


for _command in (
    chat,
    ask,
    run,
    console,
    config,
    pair,
    people,
    deliveries,
    platforms,
    mcp,
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


def _report(problem: Exception, args: list[str]) -> int:
    """Print an expected error and return the exit code for it."""
    if isinstance(problem, OSError):
        output.discard_output()  # printing may be what failed, and would fail again at the end
    failure = errors.failure_from(problem)
    failure.print(args)
    return failure.exit_code


@contextmanager
def _print_warnings() -> Iterator[None]:
    """Print the warnings that the library logs while the block runs."""
    log, handler = logging.getLogger(NAME), errors.WarningPrinter(logging.WARNING)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


def load_credentials(environ: MutableMapping[str, str]) -> None:
    """Set the variables whose values a service manager keeps in files (`LoadCredential`).

    Each file in `CREDENTIALS_DIRECTORY` is named like its variable; systemd puts a prefix in lower
    case before the names of files that it has read from a folder. Unlike the environment that a
    program is started with, no other process can read them in /proc. A variable that is set stays.
    """
    folder = environ.get("CREDENTIALS_DIRECTORY")
    try:
        entries = list(os.scandir(folder)) if folder else []
    except OSError:
        return
    for entry in entries:
        match = re.fullmatch(r"(?:[a-z]+_)?([A-Z][A-Z0-9_]*)", entry.name)
        if match and match[1] not in environ:
            with suppress(OSError, UnicodeError), open(entry.path, encoding="utf-8") as file:
                environ[match[1]] = file.read().strip()


def _open_missing_streams() -> None:
    """Open the null device for each standard stream that was closed by whoever started us.

    Python sets such a stream to None, and the next file that is opened would get its number.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8"))


def _replace_unencodable_characters() -> None:
    """Print `?` for characters that the terminal's encoding lacks, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
