"""What the program says when something is wrong, and the number it ends with."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from typing import NamedTuple

import click

from tertulia import errors
from tertulia.cli.output import one_line

OK = 0
NO = 1
USAGE = 2
NOT_FOUND = 3
CONFLICT = 4
STORE = 5
DENIED = 6
INTERRUPTED = 130
PIPE_CLOSED = 141

EXIT_CODES = {
    OK: "All is well.",
    NO: "The answer is no: the store has faults, the doctor found problems, or the question "
    "whether to go on was answered with no.",
    USAGE: "The command was not understood, or an option or a setting is not allowed.",
    NOT_FOUND: "There is no session, message or other thing of that name.",
    CONFLICT: "Somebody else was first, the title is taken, or it makes no sense in this state.",
    STORE: "The store is missing, damaged, full, locked, not a store, or of another version; or "
    "the system refused to read or write something else.",
    DENIED: "That is not yours to see or change, or a limit is spent.",
    INTERRUPTED: "Interrupted with Ctrl-C.",
    PIPE_CLOSED: "Whoever read the output stopped reading, such as `head`.",
}

# The first that fits counts.
_BY_KIND: tuple[tuple[type[errors.Error], int], ...] = (
    (errors.ConfigError, USAGE),
    (errors.NotFound, NOT_FOUND),
    (errors.Conflict, CONFLICT),
    (errors.IllegalMove, CONFLICT),
    (errors.StoreError, STORE),
    (errors.AccessDenied, DENIED),
    (errors.BudgetExceeded, DENIED),
)

# What is no fault of the program, and so is told without a traceback.
TOLD = (errors.Error, click.ClickException, ModuleNotFoundError, OSError)


class Failure(NamedTuple):
    """An error as it is told."""

    exit_code: int
    code: str
    message: str
    hint: str | None = None

    def tell(self, args: Sequence[str]) -> None:
        """Print it where errors are printed, in the form that the line asks for.

        The line itself is looked at, because it may be what was not understood.
        """
        if _has(args, "--json"):
            told = {"code": self.code, "message": self.message, "hint": self.hint}
            click.echo(json.dumps({"error": told}), err=True)
            return
        color = False if _has(args, "--no-color") or os.environ.get("NO_COLOR") else None
        for word, colour, text in (
            ("error:", "red", self.message),
            ("hint:", "cyan", self.hint),
        ):
            if text:
                shown = f"{click.style(word, fg=colour)} {one_line(text)}"
                click.echo(shown, err=True, color=color)


def failure(problem: Exception) -> Failure:
    """How one of `TOLD` is told."""
    if isinstance(problem, errors.Error):
        return Failure(exit_code(problem), problem.code, problem.message, problem.hint)
    if isinstance(problem, click.ClickException):
        return Failure(USAGE, "usage", _sentence(problem.format_message()), _usage_hint(problem))
    if isinstance(problem, ModuleNotFoundError):
        extra = "gateway" if problem.name in ("prompt_toolkit", "structlog") else "cli"
        hint = f"pip install 'tertulia[{extra}]'"
        return Failure(USAGE, "config", f"The package {problem.name} is not installed.", hint)
    return Failure(STORE, "system", f"The system refused: {problem}.")


def exit_code(problem: errors.Error) -> int:
    """The number for one of the library's errors."""
    return next((code for kind, code in _BY_KIND if isinstance(problem, kind)), NO)


class Warnings(logging.Handler):
    """What the library logs, as one line for people."""

    def emit(self, record: logging.LogRecord) -> None:
        click.echo(f"warning: {one_line(record.getMessage())}", err=True)


def _has(args: Sequence[str], option: str) -> bool:
    words = list(args)
    return option in (words[: words.index("--")] if "--" in words else words)


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!", ")")) else f"{text}."


def _usage_hint(problem: click.ClickException) -> str | None:
    ctx = getattr(problem, "ctx", None)
    return f"Try: {ctx.command_path} --help" if ctx is not None else None
