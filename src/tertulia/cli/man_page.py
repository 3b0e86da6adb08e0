"""Generate the manual page from the commands.

python -m tertulia.cli.man_page > share/man/man1/tertulia.1
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator

import click

from tertulia import __version__
from tertulia.cli.cli_reference import SHARED_OPTIONS, iterate_commands
from tertulia.cli.entry_point import main
from tertulia.cli.errors import EXIT_CODES
from tertulia.cli.options import NAME, CliCommand

_FILES = (
    ("~/.config/tertulia/config.toml", "The configuration, unless --config names another one."),
    (
        "~/.local/share/tertulia/talk.db",
        "The store, unless --store or the configuration says.",
    ),
    ("~/.local/state/tertulia/", "The log of the terminal chat and what was typed there."),
)
_VARIABLES = (
    ("TERTULIA_CONFIG", "The configuration file."),
    ("TERTULIA_STORE", "The store: a path, sqlite:///path or postgresql://host/name."),
    ("TERTULIA_SECTION_KEY", "Any setting, such as TERTULIA_AGENT_MODEL for agent.model."),
    ("NO_COLOR", "If it is set, output has no colours."),
)


def man_page() -> str:
    """Return the whole page, in the format of man(7)."""
    lines = [
        f'.TH TERTULIA 1 "" "tertulia {__version__}" "User commands"',
        ".SH NAME",
        f"tertulia \\- {_escape(_first_sentence(main.help or ''))}",
        ".SH SYNOPSIS",
        ".B tertulia",
        "\\fIcommand\\fR [\\fIoptions\\fR] [\\fIarguments\\fR]",
        ".SH DESCRIPTION",
        *_paragraphs(main.help or ""),
        "The documentation is in the folder docs of the source; each command prints its help with",
        "\\fB\\-\\-help\\fR.",
        ".SH OPTIONS OF EVERY COMMAND",
    ]
    with click.Context(main, info_name=NAME, **main.context_settings) as ctx:
        lines += _options(CliCommand(None), ctx)
        lines += [".SH COMMANDS"]
        for command, inner in iterate_commands(main, ctx):
            lines += _command(command, inner)
    lines += [".SH EXIT STATUS", *_definitions((str(k), v) for k, v in EXIT_CODES.items())]
    lines += [".SH ENVIRONMENT", *_definitions(_VARIABLES)]
    lines += [".SH FILES", *_definitions(_FILES)]
    return "\n".join(lines) + "\n"


def _command(command: click.Command, ctx: click.Context) -> Iterator[str]:
    pieces = " ".join(command.collect_usage_pieces(ctx))
    yield f".SS {_escape(f'{ctx.command_path} {pieces}')}"
    yield from _paragraphs(command.help or "")
    yield from _options(command, ctx)


def _options(command: click.Command, ctx: click.Context) -> Iterator[str]:
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
        if record is not None and (SHARED_OPTIONS.isdisjoint(param.opts) or not command.name):
            yield from _definitions([record])


def _definitions(items: Iterable[tuple[str, str]]) -> Iterator[str]:
    for name, text in items:
        yield from (".TP", f".B {_escape(name)}", _escape(" ".join(text.split())))


def _paragraphs(text: str) -> Iterator[str]:
    """Yield help as paragraphs. click keeps the lines of a paragraph that begins with \\b."""
    for paragraph in re.split(r"\n\n+", inspect.cleandoc(text)):
        if paragraph.startswith("\b"):
            rows = paragraph.removeprefix("\b").strip("\n").split("\n")
            yield from (".PP", ".nf", *(_escape(row) for row in rows), ".fi")
        else:
            yield from (".PP", _escape(" ".join(paragraph.split())))


def _first_sentence(text: str) -> str:
    sentence = text.strip().partition(".")[0]
    return sentence[:1].lower() + sentence[1:]


def _escape(text: str) -> str:
    """Return text in which nothing is a command of the formatter."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    # Formatters that read bytes know other characters by their number only.
    text = "".join(char if char.isascii() else f"\\[u{ord(char):04X}]" for char in text)
    return f"\\&{text}" if text.startswith((".", "'")) else text


if __name__ == "__main__":
    click.echo(man_page(), nl=False)
