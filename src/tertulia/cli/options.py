"""What every command understands: where the store and the configuration are, and how to print.

`--store`, `--config` and `--no-color` may stand anywhere on the line: `tertulia --store X sessions
list` and `tertulia sessions list --store X` are the same; the one nearest to the command wins.
"""

from __future__ import annotations

from typing import Any, TypeVar

import click

F = TypeVar("F")

_LONGEST_SENTENCE = 200


class Request:
    """What the options common to all commands said."""

    def __init__(self) -> None:
        self.store: str | None = None
        self.config: str | None = None
        self.json = False
        self.no_color = False


class Words(click.types.StringParamType):
    """Text from the command line, as a database takes it.

    Bytes that are no UTF-8 arrive as halves of surrogate pairs, which no database stores.
    """

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(value).encode("utf-8", "replace").decode()


WORDS = Words()


def json_option(command: F) -> F:
    """`--json`, for a command that prints data."""
    option = click.option(
        "--json",
        is_flag=True,
        expose_value=False,
        callback=_json,
        help="Print JSON for programs; errors too.",
    )
    return option(command)  # type: ignore[type-var]


class Command(click.Command):
    """A command with the options that every command has."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += _common()

    def get_short_help_str(self, limit: int = 45) -> str:
        """The first sentence, whole: a list of commands breaks it, and need not cut it."""
        return super().get_short_help_str(_LONGEST_SENTENCE)


class Group(click.Group):
    """Commands of one noun."""

    command_class = Command

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += _common()


def _common() -> list[click.Parameter]:
    return [
        click.Option(
            ["--store"],
            metavar="WHERE",
            expose_value=False,
            callback=_store,
            help="The store: a path, sqlite:///path or postgresql://…. Default: $TERTULIA_STORE, "
            "else a file in the platform's data folder.",
        ),
        click.Option(
            ["--config"],
            metavar="FILE",
            expose_value=False,
            callback=_config,
            help="The configuration. Default: $TERTULIA_CONFIG, else config.toml in the platform's "
            "config folder, if there is one.",
        ),
        click.Option(
            ["--no-color"],
            is_flag=True,
            expose_value=False,
            callback=_no_color,
            help="Print without colours; so does the variable NO_COLOR.",
        ),
    ]


def _store(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.ensure_object(Request).store = value


def _config(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.ensure_object(Request).config = value


def _json(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    ctx.ensure_object(Request).json |= value


def _no_color(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    ctx.ensure_object(Request).no_color |= value
