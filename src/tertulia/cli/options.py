"""Options and base classes that all commands share.

`--store`, `--config` and `--no-color` are accepted before and after the command: `tertulia --store
X sessions list` and `tertulia sessions list --store X` mean the same. If an option is given twice,
the value nearest to the command is used.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from typing import Any, TypeVar

import click

from tertulia.core.session import STATES

F = TypeVar("F")

NAME = "tertulia"

# A command in a text: no word or path goes on before it, and it names a command.
_COMMAND = re.compile(rf"(?<![\w/.-]){NAME} (?=[a-z-])")

_MAX_SENTENCE_LENGTH = 200
_HUNDRED_YEARS_IN_MINUTES = 52_560_000


class CommandOptions:
    """Values of the options that all commands share."""

    def __init__(self) -> None:
        self.store: str | None = None
        self.config: str | None = None
        self.json = False
        self.no_color = False


class Utf8Text(click.types.StringParamType):
    """Text argument that a database can store.

    Bytes that are not UTF-8 reach Python as lone surrogates, which no database stores; each one is
    replaced with `?`.
    """

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(value).encode("utf-8", "replace").decode()


TEXT = Utf8Text()


def json_option(command: F) -> F:
    """Add `--json` to a command that prints data."""
    option = click.option(
        "--json",
        is_flag=True,
        expose_value=False,
        callback=_set_json,
        help="Print JSON for programs, errors too.",
    )
    return option(command)  # type: ignore[type-var]


def plain_option(command: F) -> F:
    """Add `--plain` to a command that opens a conversation in the terminal."""
    option = click.option(
        "--plain",
        is_flag=True,
        help="Print whole lines and words instead of marks: for screen readers.",
    )
    return option(command)  # type: ignore[type-var]


def session_filters(command: F) -> F:
    """Add the options that select sessions to a command."""
    options = (
        click.option(
            "--platform", type=TEXT, help="Only sessions of a platform, such as telegram."
        ),
        click.option("--key", type=TEXT, help="Only sessions of one conversation."),
        click.option("--person", type=TEXT, help="Only sessions of a person, such as telegram:42."),
        click.option(
            "--state",
            type=click.Choice(STATES),
            default="all",
            show_default=True,
            help="Only sessions in this state.",
        ),
        click.option(
            "--active-minutes",
            metavar="N",
            type=click.IntRange(1),
            callback=_limit_minutes,
            help="Only sessions with activity in the last N minutes.",
        ),
    )
    for option in reversed(options):  # the last one that is added is listed first
        command = option(command)  # type: ignore[type-var]
    return command


def _limit_minutes(ctx: click.Context, param: click.Parameter, value: int | None) -> int | None:
    """Return at most a hundred years: earlier than any session, and a time datetime can hold."""
    return None if value is None else min(value, _HUNDRED_YEARS_IN_MINUTES)


class CliCommand(click.Command):
    """A command with the shared options."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += _shared_options()

    def get_short_help_str(self, limit: int = 45) -> str:
        """Return the whole first sentence; click wraps it, so do not truncate."""
        return super().get_short_help_str(_MAX_SENTENCE_LENGTH)


class CommandGroup(CliCommand, click.Group):
    """A group of commands for one noun, with the shared options."""

    command_class = CliCommand


def _shared_options() -> list[click.Parameter]:
    return [
        click.Option(
            ["--store"],
            metavar="WHERE",
            expose_value=False,
            callback=_set_store,
            help="The store: a path, sqlite:///path or postgresql://…. Default: $TERTULIA_STORE, "
            "else a file in the platform's data folder.",
        ),
        click.Option(
            ["--config"],
            metavar="FILE",
            expose_value=False,
            callback=_set_config,
            help="The configuration file. Default: $TERTULIA_CONFIG, else config.toml in the "
            "platform's config folder, if it exists.",
        ),
        click.Option(
            ["--no-color"],
            is_flag=True,
            expose_value=False,
            callback=_set_no_color,
            help="Print without colours. The variable NO_COLOR does the same.",
        ),
    ]


def _set_store(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.ensure_object(CommandOptions).store = value


def _set_config(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.ensure_object(CommandOptions).config = value


def _set_json(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    ctx.ensure_object(CommandOptions).json |= value


def _set_no_color(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    ctx.ensure_object(CommandOptions).no_color |= value


def program_name() -> str:
    """Return the name under which this program can be started again from this folder."""
    path = sys.argv[0]
    folder, name = os.path.split(path)
    if name == "__main__.py" and os.path.basename(folder) == NAME:
        return f"python -m {NAME}"
    if not name.startswith(NAME):  # another program has imported it
        return NAME
    on_path = shutil.which(name)
    if on_path is not None and os.path.realpath(on_path) == os.path.realpath(path):
        return shlex.quote(name)
    relative = os.path.relpath(path)
    return shlex.quote(path if relative.startswith(os.pardir) else relative)


def next_command(options: CommandOptions, command: str) -> str:
    """Return a command to type next, with the store and the configuration of this one."""
    words = [program_name()]
    for option, value in (("--store", options.store), ("--config", options.config)):
        if value is not None:
            words += [option, shlex.quote(value)]
    return " ".join([*words, command])


def with_program_name(text: str) -> str:
    """Return a text whose commands can be typed as they stand.

    Errors of the library and texts of the command line say `tertulia sessions list`; in a checkout
    that program is not on the PATH.
    """
    name = program_name()
    return _COMMAND.sub(lambda _: f"{name} ", text)
