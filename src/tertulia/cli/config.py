"""`tertulia config`: make, show and check the configuration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from tertulia.cli import (
    locations,
    output,
    wizard,
)
from tertulia.cli.options import WORDS, Group, Request, json_option


@click.group(cls=Group)
def config() -> None:
    """Make, show and check the configuration."""


@config.command()
@click.option(
    "--agent",
    "kind",
    type=click.Choice(["parrot", "openai", "anthropic"]),
    default="parrot",
    show_default=True,
    help="Who answers.",
)
@click.option("--model", type=WORDS, help="The model of an agent that has one.")
@click.option("--base-url", type=WORDS, help="Where the model is, if not at its provider.")
@click.option("--key-env", metavar="NAME", type=WORDS, help="The variable that holds the key.")
@click.option("--force", is_flag=True, help="Write over the file that is there.")
@json_option
@click.pass_obj
def init(request: Request, /, kind: str, force: bool, **given: str | None) -> None:
    """Write a new configuration with all that is usually set, explained."""
    names = {"model": "model", "base_url": "base_url", "key_env": "api_key_env"}
    agent: dict[str, Any] = {"kind": kind}
    agent |= {names[name]: value for name, value in given.items() if value is not None}
    from tertulia.config.schema import AgentConfig

    AgentConfig(**agent)  # what does not fit is told before anything is written
    path = locations.config_path(request)
    wizard.write_config(path, wizard.agent_text(agent), is_forced=force)
    if request.json:
        output.print_json({"config": path})
    else:
        output.say(request, f"Written to {path}. Look at it with: tertulia config show")


@config.command()
@json_option
@click.pass_obj
def show(request: Request) -> None:
    """Show what counts: the file, with variables and defaults; secrets stay hidden."""
    found = locations.config(request)
    from tertulia.config.load import shown

    told = shown(found.config)
    if request.json:
        output.print_json({"config": found.path, "variables": found.variables, "settings": told})
        return
    output.say(request, f"# file: {found.path or f'none ({locations.config_path(request)})'}")
    for name in found.variables:
        output.say(request, f"# variable: {name}")
    for line in _lines(told, ()):
        output.say(request, line)


@config.command()
@json_option
@click.pass_obj
def check(request: Request) -> None:
    """Look whether the configuration is right; ends with 2 and names the line if it is not."""
    from tertulia.config import build

    found = locations.config(request)
    build.check(found.config)
    if request.json:
        told = {"config": found.path, "variables": found.variables, "valid": True}
        output.print_json(told)
    elif found.path is None:
        words = "nothing is wrong, and the defaults count"
        output.say(request, f"There is no file at {locations.config_path(request)}: {words}.")
    else:
        output.say(request, f"{found.path} is right.")


def _lines(table: dict[str, Any], place_: tuple[str, ...]) -> Iterator[str]:
    """Settings as TOML, a section for each table; what is not set stands in a comment."""
    tables = {name: value for name, value in table.items() if isinstance(value, dict)}
    plain = {name: value for name, value in table.items() if name not in tables}
    if place_ and plain:
        yield f"\n[{'.'.join(place_)}]"
    for name, value in plain.items():
        yield f"# {name} is not set" if value is None else f"{name} = {_toml(value)}"
    for name, value in tables.items():
        yield from _lines(value, (*place_, name))


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        inside = ", ".join(f"{n} = {_toml(v)}" for n, v in value.items() if v is not None)
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return output.to_json(value, indent=None)
