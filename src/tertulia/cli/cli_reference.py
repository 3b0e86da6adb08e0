"""The page docs/cli.md, made from the commands themselves:

python -m tertulia.cli.cli_reference > docs/cli.md
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

from tertulia.cli.entry_point import (
    NAME,
    main,
)
from tertulia.cli.errors import EXIT_CODES
from tertulia.cli.options import Command

_COMMON = {"--store", "--config", "--no-color", "--help"}

_PLACES = "`seq`, `turn`, `kind`, `at` and `author` of each"

_SCHEDULE = (
    "`id`, `owner`, `when`, `task`, `target`, `session`, `misfire`, `state`, `next_at`,"
    " `created_at`"
)
_RUN = (
    "`id`, `schedule`, `planned_at`, `since`, `is_manual`, `state`, `attempts`, `ended_at`,"
    " `session_id`, `result`, `problem`"
)

# What a program gets of each command that has `--json`.
SHAPES = {
    "sessions list": "an array of sessions",
    "sessions show": f"the session, its `messages` as they were given, `places` ({_PLACES})",
    "sessions search": "an array of hits: `session_id`, `seq`, `role`, `snippet`, `at`, `score`",
    "sessions explain": "`id`, `lines`",
    "sessions rename": "the session",
    "sessions fork": "the new session",
    "sessions resume": "the session",
    "sessions export": "as `sessions show`",
    "sessions delete": "`deleted` (the id), `messages` (how many)",
    "schedules list": f"an array of schedules: {_SCHEDULE}",
    **dict.fromkeys(("schedules add", "schedules pause", "schedules resume"), _SCHEDULE),
    "schedules remove": f"what it was: {_SCHEDULE}",
    "schedules run": _RUN,
    "schedules history": f"an array of runs: {_RUN}",
    "usage": "`by`, `since`, `until`, `groups`, `total`",
    **dict.fromkeys(
        ("import hermes", "import nanobot", "import openclaw", "import jsonl"),
        "a report: `sessions`, `messages`, `skipped` and `problems` (`file`, `line`, `kind`,"
        " `detail` of each)",
    ),
    "export": "`form`, `path`, `sessions`, `messages` (how many of each)",
    "import archive": "`sessions`, `messages`, `skipped`, `problems`, `dry_run`, `made_at`",
    "store migrate": "`store`, `created`, `applied`",
    "store check": "`store`, `sound`, `faults`",
    "store backup": "`store`, `backup`, `bytes`",
    "store vacuum": "`store`, `bytes_before`, `bytes_after`",
    "store move": "`from`, `to`, `tables` (`rows` and `digest` of each)",
    "bench": "an array of figures: `work`, `times`, `median_ms`, `p99_ms`, `per_second`",
    "config init": "`config` (its path)",
    "config show": "`config`, `variables`, `settings`",
    "config check": "`config`, `variables`, `valid`",
    "ps": "an array of programs: `id`, `state`, `exit_code`, `command`, `folder`, `key`,"
    " `session`, `machine`, `environment`, `pid`, `since`, `ended`",
    "pair list": "`waiting`, `people`",
    "pair approve": "`id`, `platform`, `name`, `role`, `since`",
    "pair revoke": "`id`, `platform`, `name`, `role`, `since`",
    "doctor": "`healthy`, `findings` (`name`, `state`, `detail` and `advice` of each)",
}

_HEAD = """\
# The command line

`pip install 'tertulia[cli]'` brings the program `tertulia`; `python -m tertulia` is the same. This
page is made from the program's own help: `python -m tertulia.cli.cli_reference > docs/cli.md`.

```console
$ tertulia store migrate
$ tertulia sessions list --state current
$ tertulia sessions list --json
$ tertulia usage --by model --since 2026-03-01
$ tertulia store check
$ tertulia store backup copy.db
$ tertulia export --output archive.zip
$ tertulia doctor
```

## The store

A command works on the store that `--store` names, else on the one in the variable
`TERTULIA_STORE`, else on the one in the [configuration](config.md), else on `talk.db` in the
platform's data folder (on Linux `~/.local/share/tertulia`, on macOS `~/Library/Application
Support/tertulia`, on Windows `%LOCALAPPDATA%\\tertulia`). `tertulia store migrate`, `chat` and
`run` make it, for this user only to read; every other command refuses a store that does not exist.

## What is printed

People get tables, as wide as their terminal; in a pipe nothing is cut. With `--json` a program
gets JSON, in which sessions and hits have the field names of the library. Times in tables are the
machine's, times in JSON are UTC. Colours go with `--no-color` or the variable `NO_COLOR`. Names,
titles and messages are printed so that nothing in them acts on the terminal.

{shapes}

An error is one line beginning with `error:`, and one beginning with `hint:` that tells what to do.
With `--json` it is `{"error": {"code": …, "message": …, "hint": …}}`. Both go to the standard error
output. The program ends with one of these:
"""


def reference() -> str:
    """The whole page."""
    lines = [
        _HEAD.replace("{shapes}", "\n".join(_shapes())),
        "| exit code | meaning |",
        "|---|---|",
    ]
    lines += [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()]
    lines += ["", "## Options of every command", ""]
    with click.Context(main, info_name=NAME, **main.context_settings) as ctx:
        lines += _options(Command(None), ctx)
        lines += _pages(main, ctx)
    return "\n".join(lines) + "\n"


def _shapes() -> Iterator[str]:
    yield from ("| command | JSON |", "|---|---|")
    yield from (f"| `{command}` | {shape} |" for command, shape in SHAPES.items())


def _pages(group: click.Group, ctx: click.Context) -> Iterator[str]:
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        with click.Context(command, info_name=name, parent=ctx) as inner:
            if isinstance(command, click.Group):
                yield from _pages(command, inner)
            else:
                yield from _page(command, inner)


def _page(command: click.Command, ctx: click.Context) -> Iterator[str]:
    pieces = " ".join(command.collect_usage_pieces(ctx))
    yield from ("", f"## {ctx.command_path}", "")
    yield from ("```text", f"{ctx.command_path} {pieces}", "```", "")
    yield from _paragraphs(command.help or "")
    yield from _options(command, ctx)


def _paragraphs(text: str) -> Iterator[str]:
    """Help as Markdown. A paragraph after a backspace is one whose lines stay as they are."""
    for paragraph in re.split(r"\n\n+", inspect.cleandoc(text)):
        if paragraph.startswith("\b"):
            yield from ("```text", paragraph.removeprefix("\b").strip("\n"), "```", "")
        else:
            yield from (" ".join(paragraph.split()), "")


def _options(command: click.Command, ctx: click.Context) -> Iterator[str]:
    """The options that the help of a command tells of."""
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
        if record is not None and (_COMMON.isdisjoint(param.opts) or not command.name):
            names, words = record
            words, bracket, extra = words.partition("  [")
            yield f"- `{names}`: {words}{f' ({extra[:-1]})' if bracket else ''}"


if __name__ == "__main__":
    click.echo(reference(), nl=False)
