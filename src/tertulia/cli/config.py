"""`tertulia config`: create, show and check the configuration."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import click

from tertulia.cli import errors, locations, output, wizard
from tertulia.cli.options import TEXT, CommandGroup, CommandOptions, json_option, next_command

_PARSERS: dict[str, Callable[[str], Any]] = {
    "command": wizard.parse_command,
    "key_env": wizard.check_variable,
    "base_url": wizard.check_address,
    "url": wizard.check_address,
}


@click.group(cls=CommandGroup)
def config() -> None:
    """Create, show and check the configuration."""


@config.command()
@click.option(
    "--agent",
    "kind",
    type=click.Choice(list(wizard.AGENT_KINDS)),
    help="The agent that answers. Without any option, questions ask for it; without a terminal it"
    " is the parrot.",
)
@click.option("--model", type=TEXT, help="The model of the agent, if it has one.")
@click.option("--base-url", type=TEXT, help="Address of the model, if not its provider's.")
@click.option("--key-env", metavar="NAME", type=TEXT, help="The variable that contains the key.")
@click.option("--command", "command", type=TEXT, help="The program and its arguments, in one text.")
@click.option("--url", type=TEXT, help="Address of an agent over HTTP.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@json_option
@click.pass_obj
def init(options: CommandOptions, /, kind: str | None, force: bool, **values: str | None) -> None:
    """Write a new configuration file with the usual settings, explained."""
    has_terminal = sys.stdin.isatty() and sys.stdout.isatty() and not options.json
    if kind is None and has_terminal and not any(values.values()):
        asked = wizard.create_config(options, is_forced=force)
        output.print_text(options, wizard.next_step(options, asked))
        return
    agent: dict[str, Any] = {"kind": kind or "parrot"}
    for name, value in values.items():
        if value is not None:
            key = "api_key_env" if name == "key_env" else name
            agent[key] = _PARSERS.get(name, str)(value)
    from tertulia.config.load import ConfigReader, Origin

    # Raises for wrong values before anything is written.
    ConfigReader(Origin("", {})).config({"agent": agent})
    path = locations.config_path(options)
    wizard.write_config(path, wizard.config_text(agent), is_forced=force)
    if options.json:
        output.print_json({"config": path})
    else:
        output.print_text(options, f"Written to {path}.\n{wizard.next_step(options, agent)}")


@config.command()
@json_option
@click.pass_obj
def path(options: CommandOptions) -> None:
    """Print the path of the configuration file, whether or not it exists."""
    name = locations.config_path(options)
    if options.json:
        output.print_json({"config": name, "exists": os.path.exists(name)})
    else:
        output.print_text(options, name)


@config.command()
@json_option
@click.pass_obj
def show(options: CommandOptions) -> None:
    """Show the settings in use, from the file, variables and defaults; secrets stay hidden."""
    loaded = locations.load_config(options)
    from tertulia.config.load import to_redacted_dict

    settings = to_redacted_dict(loaded.config)
    if options.json:
        output.print_json(
            {"config": loaded.path, "variables": loaded.variables, "settings": settings}
        )
        return
    path = loaded.path or f"none ({locations.config_path(options)})"
    lines = [f"# file: {path}", *(f"# variable: {name}" for name in loaded.variables)]
    with output.paged_console(options) as console:
        for line in (*lines, *_toml_lines(settings, ())):
            console.print(output.display_text(line), soft_wrap=True)


@config.command()
@json_option
@click.pass_obj
def check(options: CommandOptions) -> None:
    """Check the configuration; name everything that is wrong, with its line, and exit with 2."""
    from tertulia.config import build, load

    path = locations.existing_config_path(options)
    problems = load.find_problems(path, os.environ)
    if not problems:
        loaded = load.load_config(path, os.environ)
        problems = build.find_problems(loaded.config, locations.data_folder())
    if problems:
        flags = {"--json": options.json, "--no-color": options.no_color}
        failures = [errors.failure_from(problem) for problem in problems]
        errors.print_failures(failures, [flag for flag, is_set in flags.items() if is_set])
        click.get_current_context().exit(failures[0].exit_code)
    if options.json:
        output.print_json({"config": loaded.path, "variables": loaded.variables, "valid": True})
    elif loaded.path is None:
        path = locations.config_path(options)
        output.print_text(options, f"There is no file at {path}; the default settings are valid.")
    else:
        command = next_command(options, "doctor")
        text = f"{loaded.path} is valid. To try the agent and the store: {command}"
        output.print_text(options, text)


def _toml_lines(table: dict[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    """Yield settings as TOML, a section for each table; a value of None becomes a comment."""
    tables = {name: value for name, value in table.items() if isinstance(value, dict)}
    values = {name: value for name, value in table.items() if name not in tables}
    if path and values:
        yield f"\n[{'.'.join(path)}]"
    for name, value in values.items():
        yield f"# {name} is not set" if value is None else f"{name} = {_toml_value(value)}"
    for name, value in tables.items():
        yield from _toml_lines(value, (*path, name))


def _toml_value(value: Any) -> str:
    if isinstance(value, dict):
        inside = ", ".join(f"{n} = {_toml_value(v)}" for n, v in value.items() if v is not None)
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml_value, value))}]"
    return output.display_json(value, indent=None)
