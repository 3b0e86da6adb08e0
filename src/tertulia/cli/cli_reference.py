"""Generate docs/cli.md from the commands.

python -m tertulia.cli.cli_reference > docs/cli.md
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

from tertulia.cli.entry_point import main
from tertulia.cli.errors import EXIT_CODES
from tertulia.cli.options import NAME, CliCommand
from tertulia.install_command import INSTALL

SHARED_OPTIONS = {"--store", "--config", "--no-color", "--help"}

_POSITIONS = "`seq`, `turn`, `kind`, `at` and `author` of each"

_SCHEDULE = (
    "`id`, `owner`, `when`, `task`, `target`, `session`, `misfire`, `state`, `next_at`,"
    " `created_at`"
)
_RUN = (
    "`id`, `schedule`, `planned_at`, `since`, `is_manual`, `state`, `attempts`, `ended_at`,"
    " `session_id`, `result`, `problem`"
)

_DELIVERY = (
    "`id`, `state`, `target`, `platform`, `account`, `chat_id`, `thread_id`, `session_id`, `text`,"
    " `attempts`, `created_at`, `sent_at`, `problem`"
)

# The JSON output of each command that has `--json`.
JSON_OUTPUT = {
    "sessions list": "an array of sessions",
    "sessions show": f"the session, its `messages` as they were stored, `places` ({_POSITIONS})",
    "sessions search": "an array of hits: `session_id`, `seq`, `role`, `snippet`, `at`, `score`",
    "sessions explain": "`id`, `lines`",
    "sessions rename": "the session",
    "sessions fork": "the new session",
    "sessions undo": "the session",
    "sessions redo": "the session",
    "sessions retry": "`session_id`, `text`, `input_tokens`, `output_tokens`",
    "sessions resume": "the session",
    "sessions export": "as `sessions show`",
    "sessions delete": "`deleted` (the id), `messages` (how many)",
    "schedules list": f"an array of schedules: {_SCHEDULE}",
    **dict.fromkeys(("schedules add", "schedules pause", "schedules resume"), _SCHEDULE),
    "schedules remove": f"the removed schedule: {_SCHEDULE}",
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
    "bench": "an array of measurements: `work`, `times`, `median_ms`, `p99_ms`, `per_second`",
    "console": "`code`, `links`, `until`, `is_running`",
    "config init": "`config` (its path)",
    "config path": "`config` (its path), `exists`",
    "config show": "`config`, `variables`, `settings`",
    "config check": "`config`, `variables`, `valid`",
    "ps": "an array of processes: `id`, `state`, `exit_code`, `command`, `folder`, `key`,"
    " `session`, `machine`, `environment`, `pid`, `since`, `ended`",
    "ask": "`session_id`, `text`, `input_tokens`, `output_tokens`",
    "mcp add": "`config`, `servers`",
    "mcp list": "`name`, `address`, `role`, `approval`, `tools`, `changed`",
    "mcp check": "`server`, `tools`, `problems`, `changes`",
    "mcp accept": "`server`, `tools`",
    "mcp restart": "`server`, `ended`",
    "people list": "`id`, `platform`, `name`, `role`, `since`",
    "people show": "`id`, `platform`, `name`, `role`, `since`, `zone`, `session_ids`",
    "people approve": "`id`, `platform`, `name`, `role`, `since`",
    "people refuse": "`id`",
    "people memory": "an array of memories: `id`, `text`, `author`, `state`, `session_id`,"
    " `created_at`",
    "people role": "`id`, `platform`, `name`, `role`, `since`",
    "deliveries list": _DELIVERY,
    "deliveries show": _DELIVERY,
    "deliveries retry": _DELIVERY,
    "deliveries settle": _DELIVERY,
    "deliveries drop": _DELIVERY,
    "pair list": "`waiting`, `people`",
    "pair approve": "`id`, `platform`, `name`, `role`, `since`",
    "pair refuse": "`id`",
    "pair revoke": "`id`, `platform`, `name`, `role`, `since`",
    **dict.fromkeys(
        ("platforms", "platforms list"),
        "an array of accounts: `name`, `account`, `state`, `node`, `heard_at`, `problem`",
    ),
    "store prune": "`store`, `removed`",
    "platforms check": "the account, and `identity`",
    "platforms add": "`name`, `account`, `identity`, `config`",
    "doctor": "`healthy`, `findings` (`name`, `state`, `detail` and `advice` of each)",
}

_HEAD = """\
# The command line

`{install}` in a checkout [installs](installation.md) the program `tertulia`;
`python -m tertulia` is the same, and `man tertulia` has the commands in short.
This page is generated from the program's help:
`python -m tertulia.cli.cli_reference > docs/cli.md`.

```console
$ cd "$(mktemp -d)"      # a new folder for the files
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

A command uses the store that `--store` names, else the one in the variable `TERTULIA_STORE`, else
the one in the [configuration](config.md), else `talk.db` in the platform's data folder (on Linux
`~/.local/share/tertulia`, on macOS `~/Library/Application Support/tertulia`, on Windows
`%LOCALAPPDATA%\\tertulia`). `store migrate`, `schedules add`, `chat`, `run` and the `import`
commands create it, readable by this user only; every other command refuses a store that does not
exist.

## Output

Without `--json` a command prints tables as wide as the terminal; in a pipe nothing is cut. With
`--json` it prints JSON, in which sessions and hits have the field names of the library. Times in
tables are in the machine's time zone, times in JSON are in UTC. `--no-color` and the variable
`NO_COLOR` turn colours off. Names, titles and messages are printed so that nothing in them acts on
the terminal.

{json_output}

An error is one line that begins with `error:`, and one that begins with `hint:` and says what to
do. With `--json` it is `{"error": {"code": …, "message": …, "hint": …}}`; if `config check` finds
several mistakes, `errors` has all of them, and `error` is the first. All of it goes to the standard
error output. The exit codes are:
"""


def reference() -> str:
    """Return the whole page."""
    lines = [
        _HEAD.replace("{json_output}", "\n".join(_json_table())).replace("{install}", INSTALL),
        "| exit code | meaning |",
        "|---|---|",
    ]
    lines += [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()]
    lines += ["", "## Options of every command", ""]
    with click.Context(main, info_name=NAME, **main.context_settings) as ctx:
        lines += _options(CliCommand(None), ctx)
        for command, inner in iterate_commands(main, ctx):
            lines += _command_section(command, inner)
    return "\n".join(lines) + "\n"


def _json_table() -> Iterator[str]:
    yield from ("| command | JSON |", "|---|---|")
    yield from (f"| `{command}` | {fields} |" for command, fields in JSON_OUTPUT.items())


def iterate_commands(
    group: click.Group, ctx: click.Context
) -> Iterator[tuple[click.Command, click.Context]]:
    """Yield every command below a group, with a context that has its whole name."""
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        with click.Context(command, info_name=name, parent=ctx) as inner:
            if isinstance(command, click.Group):
                yield from iterate_commands(command, inner)
            else:
                yield command, inner


def _command_section(command: click.Command, ctx: click.Context) -> Iterator[str]:
    pieces = " ".join(command.collect_usage_pieces(ctx))
    yield from ("", f"## {ctx.command_path}", "")
    yield from ("```text", f"{ctx.command_path} {pieces}", "```", "")
    yield from _paragraphs(command.help or "")
    yield from _options(command, ctx)


def _paragraphs(text: str) -> Iterator[str]:
    """Return help as Markdown. click keeps the lines of a paragraph that begins with \\b."""
    for paragraph in re.split(r"\n\n+", inspect.cleandoc(text)):
        if paragraph.startswith("\b"):
            yield from ("```text", paragraph.removeprefix("\b").strip("\n"), "```", "")
        else:
            yield from (" ".join(paragraph.split()), "")


def _options(command: click.Command, ctx: click.Context) -> Iterator[str]:
    """Return the options in the help of a command, without those that all commands share."""
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
        if record is not None and (SHARED_OPTIONS.isdisjoint(param.opts) or not command.name):
            names, text = record
            text, bracket, extra = text.partition("  [")
            yield f"- `{names}`: {text}{f' ({extra[:-1]})' if bracket else ''}"


if __name__ == "__main__":
    click.echo(reference(), nl=False)
