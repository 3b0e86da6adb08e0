"""The first questions, and the file that is made of the answers."""

from __future__ import annotations

import json
import os
import shlex

import click

from tertulia.cli import (
    locations,
    output,
)
from tertulia.cli.options import Request
from tertulia.errors import ConfigError

_KEYS = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
_MODELS = {"openai": "gpt-5-mini", "anthropic": "claude-sonnet-4-5"}

_HEAD = """\
# The configuration of Tertulia. Everything can be left out; docs/config.md has all keys.
# Environment variables go over it: TERTULIA_AGENT_MODEL is agent.model.
"""
_REST = """
[gateway]
# meanwhile = "queue"      # or "interrupt", "steer": what a message does during an answer

[store]
# where = "talk.db"        # or postgresql://…; without it: talk.db in the data folder
# zone = "Europe/Madrid"   # without it: the machine's

# [store.policies.default]
# mode = "both"            # a new conversation after silence and each morning; "none": never
# idle_minutes = 1440
# at_hour = 4

[http]
# enabled = true           # an API for programs, on this machine only; see docs/http.md

[log]
# level = "info"
# format = "text"          # or "json"
"""


def asked_config(request: Request) -> str:
    """Ask which agent answers, and write the configuration; its path."""
    output.say(request, "There is no configuration yet. A few questions make one.")
    kind = click.prompt(
        "Who answers? parrot needs nothing and shows what a model would be given",
        type=click.Choice(["parrot", "openai", "anthropic", "command", "http"]),
        default="parrot",
    )
    path = locations.config_path(request)
    write_config(path, agent_text(_asked_agent(kind)))
    output.say(request, f"Written to {path}.")
    return path


def _asked_agent(kind: str) -> dict[str, object]:
    given: dict[str, object] = {"kind": kind}
    if kind in _KEYS:
        given["model"] = click.prompt("Which model", default=_MODELS[kind])
        if kind == "openai":
            url = click.prompt(
                "Where is it? Enter: at OpenAI", default="", show_default=False, value_proc=_address
            )
            given |= {"base_url": url} if url else {}
        words = "Which environment variable holds the key? The key itself is not stored"
        given["api_key_env"] = click.prompt(words, default=_KEYS[kind])
    elif kind == "command":
        words = "Which program, with its arguments"
        given["command"] = click.prompt(words, value_proc=_program)
    elif kind == "http":
        given["url"] = click.prompt("At which address", value_proc=_address)
    return given


def _program(given: str) -> list[str]:
    """A program and its arguments, quoted as in a shell."""
    try:
        found = shlex.split(given)
    except ValueError:
        raise click.UsageError("A quote is not closed.") from None
    if not found:
        raise click.UsageError("Name a program.")
    return found


def _address(given: str) -> str:
    """An address as an agent takes it, or none. What is written down has to work."""
    from tertulia.agents.transport import checked_url

    try:
        return checked_url(given)[0] if given else given
    except ConfigError as problem:
        raise click.UsageError(f"{problem.message} {problem.hint}") from None


def agent_text(agent: dict[str, object]) -> str:
    """The section [agent]. A JSON text or list of texts is TOML too."""
    lines = [f"{name} = {json.dumps(value)}" for name, value in agent.items()]
    return "\n".join([_HEAD, "[agent]", *lines, *_suggestions(agent), _REST])


def write_config(path: str, text: str, *, is_forced: bool = False) -> None:
    """Write a new file, for this user only; nobody's file is written over unasked."""
    folder = os.path.dirname(os.path.abspath(path))
    flags = os.O_CREAT | os.O_WRONLY | (os.O_TRUNC if is_forced else os.O_EXCL)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        number = os.open(path, flags, 0o600)
    except FileExistsError:
        raise ConfigError(
            f"There is a configuration at {path} already.",
            hint="Look at it with: tertulia config show; --force writes over it.",
            field="config",
        ) from None
    except OSError as problem:
        raise ConfigError(
            f"{path} cannot be written: {problem.strerror}.",
            hint="Name another place with --config or TERTULIA_CONFIG.",
            field="config",
        ) from problem
    with open(number, "w", encoding="utf-8") as stream:
        stream.write(text)


def _suggestions(agent: dict[str, object]) -> list[str]:
    from tertulia.config.schema import AgentConfig

    if agent != {"kind": AgentConfig().kind}:
        return []
    return [
        '# kind = "openai"         # or "anthropic", "command", "http"',
        '# model = "gpt-5-mini"',
        '# base_url = "http://localhost:11434/v1"   # any server that speaks OpenAI\'s way',
        '# api_key_env = "OPENAI_API_KEY"           # the variable that holds the key',
    ]
