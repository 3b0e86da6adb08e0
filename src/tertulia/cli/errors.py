"""Error messages and exit codes of the program."""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Sequence
from typing import NamedTuple

import click

from tertulia import errors
from tertulia.cli.options import with_program_name
from tertulia.cli.output import display_line
from tertulia.install_command import extra_of, install_command

OK = 0
NEGATIVE_RESULT = 1
USAGE = 2
NOT_FOUND = 3
CONFLICT = 4
STORE = 5
DENIED = 6
NO_ANSWER = 7
INTERRUPTED = 130
PIPE_CLOSED = 141

EXIT_CODES = {
    OK: "Success.",
    NEGATIVE_RESULT: "The result is negative: the store has faults, the doctor found problems, an "
    "import could not read everything, or the question whether to go on was answered with no.",
    USAGE: "The command line is wrong, or an option or a setting is not allowed.",
    NOT_FOUND: "There is no session, message or other object of that name.",
    CONFLICT: "Another program was first, the title is already used, or the object is in a state "
    "that does not allow it.",
    STORE: "The store is missing, damaged, full, locked, not a store, or of another version; or "
    "the system refused to read or write something else.",
    DENIED: "Access denied, or a budget is used up.",
    NO_ANSWER: "The agent could not answer: its key, model, network or program failed.",
    INTERRUPTED: "Interrupted with Ctrl-C.",
    PIPE_CLOSED: "The program that read the output, such as `head`, stopped reading.",
}

# The first class that matches decides.
_EXIT_CODE_BY_CLASS: tuple[tuple[type[errors.Error], int], ...] = (
    (errors.ConfigError, USAGE),
    (errors.NotFound, NOT_FOUND),
    (errors.Conflict, CONFLICT),
    (errors.IllegalMove, CONFLICT),
    (errors.StoreError, STORE),
    (errors.AccessDenied, DENIED),
    (errors.BudgetExceeded, DENIED),
    (errors.AgentError, NO_ANSWER),
)

_SYSTEM_HINTS: dict[int | None, str] = {
    errno.ENOSPC: "Free some space and try again.",
    errno.EDQUOT: "Free some space and try again.",
    errno.EACCES: "Check which user may read and write it.",
    errno.EPERM: "Check which user may read and write it.",
    errno.EROFS: "Name a place that can be written to.",
    errno.EISDIR: "Name a file, not a folder.",
    errno.ENOENT: "Check the path.",
    errno.ENAMETOOLONG: "Choose a shorter name.",
    errno.EMFILE: "Raise the limit of open files (ulimit -n), and try again.",
}

# Errors that are not bugs of the program; they are printed without a traceback.
EXPECTED_ERRORS = (errors.Error, click.ClickException, ModuleNotFoundError, OSError)


class CliFailure(NamedTuple):
    """An error as it is printed, with the exit code of the program."""

    exit_code: int
    code: str
    message: str
    hint: str | None = None

    def print(self, args: Sequence[str]) -> None:
        """Print the error on stderr, as JSON if `args` contains --json.

        `args` is the raw command line, because it may be the part that could not be parsed.
        """
        if _has_option(args, "--json"):
            click.echo(json.dumps({"error": self.to_dict()}), err=True)
            return
        color = False if _has_option(args, "--no-color") or os.environ.get("NO_COLOR") else None
        for label, foreground, text in (
            ("error:", "red", self.message),
            ("hint:", "cyan", self.hint),
        ):
            if text:
                line = f"{click.style(label, fg=foreground)} {display_line(text)}"
                click.echo(line, err=True, color=color)

    def to_dict(self) -> dict[str, str | None]:
        """Return the error for JSON output."""
        return {"code": self.code, "message": self.message, "hint": self.hint}


def print_failures(failures: Sequence[CliFailure], args: Sequence[str]) -> None:
    """Print several errors on stderr; as JSON they are one document, with the first as `error`."""
    if len(failures) > 1 and _has_option(args, "--json"):
        fields = [failure.to_dict() for failure in failures]
        click.echo(json.dumps({"error": fields[0], "errors": fields}), err=True)
        return
    for failure in failures:
        failure.print(args)


def failure_from(problem: Exception) -> CliFailure:
    """Return what to print for one of `EXPECTED_ERRORS`."""
    if isinstance(problem, errors.Error):
        hint = with_program_name(problem.hint) if problem.hint else problem.hint
        return CliFailure(exit_code(problem), problem.code, problem.message, hint)
    if isinstance(problem, click.ClickException):
        message = with_program_name(_as_sentence(problem.format_message()))
        return CliFailure(USAGE, "usage", message, _usage_hint(problem))
    if isinstance(problem, ModuleNotFoundError):
        hint = f"Install it: {install_command(extra_of(problem.name or ''))}"
        return CliFailure(USAGE, "config", f"The package {problem.name} is not installed.", hint)
    next_step = _SYSTEM_HINTS.get(problem.errno) if isinstance(problem, OSError) else None
    return CliFailure(STORE, "system", f"The system refused: {problem}.", next_step)


def exit_code(problem: errors.Error) -> int:
    """Return the exit code for one of the library's errors."""
    matching = (code for kind, code in _EXIT_CODE_BY_CLASS if isinstance(problem, kind))
    return next(matching, NEGATIVE_RESULT)


class WarningPrinter(logging.Handler):
    """Log handler that prints each record of the library as one line on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        click.echo(f"warning: {display_line(record.getMessage())}", err=True)


def _has_option(args: Sequence[str], option: str) -> bool:
    """Return whether an option is given; after "--" every word is an argument."""
    words = list(args)
    return option in (words[: words.index("--")] if "--" in words else words)


def _as_sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!", ")")) else f"{text}."


def _usage_hint(problem: click.ClickException) -> str | None:
    ctx = getattr(problem, "ctx", None)
    return with_program_name(f"Try: {ctx.command_path} --help") if ctx is not None else None
