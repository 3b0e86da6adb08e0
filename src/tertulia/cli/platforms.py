"""`tertulia platforms`: connect chat apps, and show how their accounts are."""

from __future__ import annotations

import difflib
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from tertulia.cli import locations, output, wizard
from tertulia.cli.errors import NEGATIVE_RESULT
from tertulia.cli.options import (
    TEXT,
    CommandGroup,
    CommandOptions,
    json_option,
    with_program_name,
)
from tertulia.core.source import LOCAL
from tertulia.core.text import format
from tertulia.core.text.secret_patterns import hide_secrets
from tertulia.errors import ConfigError, Error
from tertulia.platforms.definition import PlatformDefinition, section_name
from tertulia.platforms.registry import PLATFORMS
from tertulia.records.machine_zone import machine_zone

if TYPE_CHECKING:
    from rich.table import Table

    from tertulia.config.schema import AccountSection
    from tertulia.records.listeners import Connection


class AccountStatus(NamedTuple):
    """The state of one account, as the running gateways report it."""

    name: str
    account: str
    state: str
    node: str | None = None
    heard_at: datetime | None = None
    problem: str | None = None


def to_dict(status: AccountStatus) -> dict[str, Any]:
    """Return the fields of an account for JSON."""
    heard_at = None if status.heard_at is None else status.heard_at.isoformat()
    return status._asdict() | {"heard_at": heard_at}


@click.group(cls=CommandGroup, invoke_without_command=True, no_args_is_help=False)
@json_option
@click.pass_context
def platforms(ctx: click.Context) -> None:
    """Connect chat apps, and show the state of each account."""
    if ctx.invoked_subcommand is None:
        _print_list(ctx.obj)


@platforms.command("list")
@json_option
@click.pass_obj
def list_(options: CommandOptions) -> None:
    """List the configured accounts: state, the node that listens, last sign of life, problem."""
    _print_list(options)


@platforms.command()
@click.argument("name", type=TEXT)
@click.option("--account", type=TEXT, default="", help="The account, if it is not the first one.")
@json_option
@click.pass_obj
def check(options: CommandOptions, name: str, account: str) -> None:
    """Ask the platform NAME whether it accepts the account, and who it is there."""
    section = _require_section(options, name, account)
    status = _status(section, _connections(options))
    identity, problem = None, None
    with output.spinner(options, "Asking …"):
        try:
            identity = identify(section)
        except Error as refusal:
            problem = refusal
    if options.json:
        fields = to_dict(status) | {"identity": identity}
        if problem is not None:
            fields["problem"] = hide_secrets(problem.message)
        output.print_json(fields)
    elif problem is None:
        output.print_text(options, f"{_title(name, account)} is accepted: {identity}.")
        output.print_text(options, f"State: {status.state}.")
    else:
        output.print_text(options, hide_secrets(f"{_title(name, account)}: {problem}"))
    if problem is not None:
        click.get_current_context().exit(NEGATIVE_RESULT)


@platforms.command()
@click.argument("name", type=TEXT)
@click.option("--account", type=TEXT, default="", help="A name, for a further account.")
@json_option
@click.pass_obj
def add(options: CommandOptions, name: str, account: str) -> None:
    """Connect the platform NAME: ask for its token, check it, and write its section."""
    definition = _require_definition(name)
    path = locations.config_path(options)
    _refuse_configured(options, name, account)
    if definition.guide and not options.json:
        output.print_text(options, _wrap(definition.guide))
    answers: dict[str, str] = {}
    while True:
        answers = _ask(definition, answers, options)
        try:
            identity = identify(_section(name, account, answers))
        except Error as problem:
            # A person who mistyped one thing need not type the others again.
            if options.json or not sys.stdin.isatty():
                raise
            output.print_text(options, hide_secrets(_wrap(str(problem))))
            output.print_text(options, "Once more; Enter repeats an answer, Ctrl-C gives up.")
        else:
            break
    append_section(path, section_name(name, account), answers)
    if options.json:
        output.print_json({"name": name, "account": account, "identity": identity, "config": path})
        return
    output.print_text(options, f"Connected: {identity}. Written to {path}.")
    next_steps = with_program_name(definition.pairing or _PAIRING)
    if next_steps.endswith("pair approve CODE"):
        next_steps += " --role owner"  # whoever connects an account owns it
    output.print_text(options, _wrap(next_steps))


def _ask(
    definition: PlatformDefinition, before: Mapping[str, str], options: CommandOptions
) -> dict[str, str]:
    """Ask the questions of a platform; what was answered before is repeated with Enter."""
    answers = {}
    for question in definition.setup:
        default = question.default if question.is_secret else before.get(question.key)
        default = question.default if default is None else default
        if sys.stdin.isatty():
            answer = click.prompt(
                question.question, default=default, show_default=bool(default),
                hide_input=question.is_secret, err=options.json,
            )  # fmt: skip
        else:
            answer = _read_line(question.question, default)
        answers[question.key] = answer.strip()
    return answers


def _read_line(question: str, default: str | None) -> str:
    """Return the answer from a pipe: a prompt for a secret would complain that it is shown."""
    line = sys.stdin.readline()
    answer = line.strip() or default
    if answer is None:
        reason = "is empty" if line else "is missing: the input has ended"
        raise ConfigError(
            f"The answer to {question!r} {reason}.",
            hint="Run the command in a terminal, or pass one line for each question.",
            field="input",
        )
    return answer


def _wrap(text: str) -> str:
    """Return a paragraph in lines that fit into the terminal."""
    return click.wrap_text(text, min(shutil.get_terminal_size().columns, 100))


_PAIRING = (
    "Start it with: tertulia run. Then write to the bot. It answers with a code; approve it"
    " with: tertulia pair approve CODE --role owner"
)


def identify(section: AccountSection) -> str:
    """Ask the platform of a section who the account is; raise an `Error` if it is refused."""
    import asyncio

    from tertulia.config.build import build_adapter

    async def ask() -> str:
        adapter = build_adapter(section, locations.platforms_folder())
        try:
            return await adapter.identify()
        finally:
            await adapter.close()

    return asyncio.run(ask())


def append_section(path: str, section: str, values: Mapping[str, Any]) -> None:
    """Add a section to the configuration file, which only this user can read afterwards."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in values.items() if value]
    text = "\n".join([f"[{section}]", *lines, ""])
    try:
        with open(path, encoding="utf-8") as file:
            before = file.read()
    except FileNotFoundError:
        wizard.write_config(path, f"{wizard.config_text({'kind': 'parrot'})}\n{text}")
        return
    wizard.write_config(path, f"{before.rstrip()}\n\n{text}", is_forced=True)


def account_statuses(options: CommandOptions) -> list[AccountStatus]:
    """Return the state of every configured account."""
    config = locations.load_config(options).config
    connections = _connections(options)
    sections = [section for section in config.accounts() if section.name != LOCAL]
    return [_status(section, connections) for section in sections]


def _print_list(options: CommandOptions) -> None:
    statuses = account_statuses(options)
    nothing = "No platform is configured. Connect one with: tertulia platforms add NAME"
    output.print_items(options, statuses, to_dict, _table, nothing)


def _table(statuses: Sequence[AccountStatus]) -> Table:
    table = output.new_table(
        "platform", "account", "state", "listens on", "heard", "problem", elastic="problem"
    )
    zone = machine_zone()
    styles = {"listening": "green", "problem": "red"}
    for status in statuses:
        table.add_row(
            output.cell(status.name),
            output.cell(status.account),
            output.cell(status.state, styles.get(status.state, "")),
            output.cell(status.node or ""),
            "" if status.heard_at is None else format.format_time(status.heard_at, zone),
            output.cell(status.problem or ""),
        )
    return table


def _status(section: AccountSection, connections: Sequence[Connection]) -> AccountStatus:
    name, account, settings = section
    own = [
        connection
        for connection in connections
        if (connection.platform, connection.account) == (name, account) and connection.is_fresh
    ]
    if not settings.enabled:
        return AccountStatus(name, account, "disabled")
    if not own:
        return AccountStatus(name, account, "not running")
    listening = [connection for connection in own if connection.listening]
    problem = next((connection.problem for connection in own if connection.problem), None)
    times = [connection.heard_at for connection in own if connection.heard_at is not None]
    heard = max(times, default=None)
    return AccountStatus(
        name,
        account,
        "problem" if problem else "listening" if listening else "connecting",
        ", ".join(connection.node for connection in listening) or None,
        heard,
        None if problem is None else hide_secrets(problem),
    )


def _connections(options: CommandOptions) -> list[Connection]:
    """Return what the running gateways report; nothing if there is no store yet."""
    location = locations.store_location(options)
    if locations.is_store_missing(location):
        return []
    with locations.open_to_read(options) as store:
        return store.listeners.connections()


def _require_section(options: CommandOptions, name: str, account: str) -> AccountSection:
    sections = [
        section
        for section in locations.load_config(options).config.accounts()
        if section.name == name
    ]
    for section in sections:
        if section.account == account:
            return section
    definition = _require_platform(name)
    hint = f"Connect it with: tertulia platforms add {name}"
    if definition.build is None:
        hint = f"It has no account to check. These have one: {', '.join(_names_to_add())}."
    elif not definition.setup:
        hint = f"Write its section [{section_name(name, account)}] into the configuration."
    elif sections:
        titles = ", ".join(_title(*section[:2]) for section in sections)
        hint = f"There are: {titles}. Name an account with --account NAME."
    raise ConfigError(
        f"{_title(name, account)} is not configured.", hint=hint, field=section_name(name, account)
    )


def _refuse_configured(options: CommandOptions, name: str, account: str) -> None:
    path = locations.config_path(options)
    if not os.path.exists(path):
        return
    from tertulia.config.load import load_config

    # The file alone: variables may set a part of what is to be written now.
    for section in load_config(path, {}).config.accounts():
        if (section.name, section.account) == (name, account):
            raise ConfigError(
                f"{_title(name, account)} is configured already.",
                hint="Change its section in the file, or add another account with --account NAME.",
                field=section_name(name, account),
            )


def _require_platform(name: str) -> PlatformDefinition:
    """Return a platform; raise `ConfigError` with the name that was meant if there is none."""
    definition = PLATFORMS.get(name)
    if definition is None:
        names = _names_to_add()
        closest = difflib.get_close_matches(name.lower(), names, n=1)
        hint = f"Did you mean {closest[0]}?" if closest else f"There are: {', '.join(names)}."
        raise ConfigError(f"There is no platform {name!r}.", hint=hint, field="name")
    return definition


def _require_definition(name: str) -> PlatformDefinition:
    definition = _require_platform(name)
    if definition.build is None or not definition.setup:
        raise ConfigError(
            f"{name} cannot be added with questions.",
            hint=f"These can be added: {', '.join(_names_to_add())}."
            " docs/config.md shows other sections.",
            field="name",
        )
    return definition


def _names_to_add() -> list[str]:
    return sorted(name for name in PLATFORMS if PLATFORMS[name].setup)


def _section(name: str, account: str, answers: Mapping[str, Any]) -> AccountSection:
    """Return the section that the answers make; raise `ConfigError` if one is wrong."""
    from tertulia.config.load import PREFIX, read_values

    values = {key: value for key, value in answers.items() if value}
    table = {"accounts": {account: values}} if account else values
    # Variables count too: TERTULIA_PLATFORMS_TELEGRAM_BASE_URL names a server of one's own.
    own = f"{PREFIX}PLATFORMS_{name}_".upper()
    environ = {key: value for key, value in os.environ.items() if key.startswith(own)}
    config = read_values({"platforms": {name: table}}, environ)
    sections = {section.account: section for section in config.accounts()}
    return sections[account]


def _title(name: str, account: str) -> str:
    return f"{name}/{account}" if account else name
