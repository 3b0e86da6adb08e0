"""Create a configuration file: ask for the agent, and write the file."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import shutil
import tempfile
import tomllib
from collections.abc import Mapping
from contextlib import suppress

import click

from tertulia.cli import locations, output
from tertulia.cli.options import CommandOptions, next_command
from tertulia.errors import ConfigError
from tertulia.private_files import make_private_folder

AGENT_KINDS = {
    "parrot": "no model: it shows what a model would get, and needs no key",
    "openai": "a model with OpenAI's API: OpenAI, OpenRouter, Ollama, vLLM …",
    "anthropic": "a model of Anthropic",
    "command": "your program",
    "http": "your web service",
}
_KEY_VARIABLES = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
_DEFAULT_MODELS = {"openai": "gpt-5-mini", "anthropic": "claude-sonnet-4-5"}

_HEAD = """\
# The configuration of Tertulia. Every setting is optional; docs/config.md lists all of them.
# Environment variables override it: TERTULIA_AGENT_MODEL is agent.model.
"""
_REST = """
[gateway]
# meanwhile = "queue"      # or "interrupt", "steer": effect of a message during an answer

[store]
# where = "talk.db"        # or postgresql://…; default: talk.db in the data folder
# zone = "Europe/Madrid"   # default: the machine's

# [store.policies.default]
# mode = "both"            # a new session when idle and each morning; "none": never
# idle_minutes = 1440
# at_hour = 4

[http]
# enabled = true           # an API for programs, on this machine only; see docs/http.md

[log]
# level = "info"
# format = "text"          # or "json"
"""


def create_config(options: CommandOptions, *, is_forced: bool = False) -> dict[str, object]:
    """Ask who answers, write the configuration file and return its section [agent].

    If there is one and `is_forced` is false, ask first whether to replace its agent; everything
    else in it stays. Raise ConfigError if it is to stay as it is.
    """
    path = locations.config_path(options)
    before: str | None = None
    if os.path.exists(path) and not is_forced:
        question = f"There is already a configuration at {path}. Replace its agent?"
        if not output.ask_yes_no(f"{question} The rest stays."):
            raise _exists_error(path)
        with open(path, encoding="utf-8") as file:
            before = file.read()
    _require_writable(path)
    choices = click.HelpFormatter(width=min(shutil.get_terminal_size().columns, 100))
    with choices.indentation():
        choices.write_dl(list(AGENT_KINDS.items()))
    output.print_text(options, f"Who answers?\n{choices.getvalue().rstrip()}")
    kind = click.prompt(
        "Agent", type=click.Choice(list(AGENT_KINDS)), default="parrot", show_choices=False
    )
    agent = _ask_agent(kind)
    text = config_text(agent) if before is None else with_agent(before, agent, path)
    write_config(path, text, is_forced=is_forced or before is not None)
    output.print_text(options, f"Written to {path}.")
    return agent


def with_agent(text: str, agent: Mapping[str, object], path: str) -> str:
    """Return the text of a configuration file with another section [agent].

    Raise ConfigError if the rest would not stay as it is.
    """
    section = "\n".join(["[agent]", *_key_lines(agent), ""])
    lines: list[str] = []
    is_agent = is_written = False
    for line in text.splitlines():
        header = re.match(r"\s*\[+\s*([\w.\"'-]+)", line)
        if header is not None:
            is_agent = header[1].split(".")[0].strip("\"'") == "agent"
            if is_agent and not is_written:
                lines.append(section)
                is_written = True
        if not is_agent:
            lines.append(line)
    result = "\n".join([*lines, *([] if is_written else ["", section]), ""])
    try:
        before, after = tomllib.loads(text), tomllib.loads(result)
    except tomllib.TOMLDecodeError as problem:
        raise ConfigError(
            f"{path} is not valid TOML: {problem}.", hint="Correct it first."
        ) from None
    if {**before, "agent": dict(agent)} != after:
        raise ConfigError(
            f"The section [agent] of {path} cannot be replaced here.",
            hint=f"Write it by hand:\n{section}",
            field="agent",
        )
    return result


def next_step(options: CommandOptions, agent: Mapping[str, object]) -> str:
    """Return what to do after the file was written: set the key, then talk."""
    variable = agent.get("api_key_env")
    lines = [f"Talk with it: {next_command(options, 'chat')}"]
    if variable and not os.environ.get(str(variable)):
        lines.insert(0, f"Set the key first: export {variable}=…")
    return "\n".join(lines)


def check_variable(name: str) -> str:
    """Return the name of an environment variable; raise UsageError if it cannot be one."""
    name = name.strip()
    if name and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        # What was typed is not repeated: it may be the key itself.
        raise click.UsageError(
            "That is no name of an environment variable. Type the name, such as OPENAI_API_KEY,"
            " not the key."
        )
    return name


def _ask_agent(kind: str) -> dict[str, object]:
    agent: dict[str, object] = {"kind": kind}
    if kind in _KEY_VARIABLES:
        agent["model"] = click.prompt("Model", default=_DEFAULT_MODELS[kind])
        if kind == "openai":
            url = click.prompt(
                "Address of the server (Enter: OpenAI)",
                default="",
                show_default=False,
                value_proc=check_address,
            )
            agent |= {"base_url": url} if url else {}
        question = "Name of the environment variable with the key, not the key"
        default = _KEY_VARIABLES[kind]
        if "base_url" in agent:  # a server of one's own often wants no key
            question, default = f"{question} (Enter: none)", ""
        variable = click.prompt(
            question, default=default, show_default=bool(default), value_proc=check_variable
        )
        agent |= {"api_key_env": variable} if variable else {}
    elif kind == "command":
        question = "Program, with its arguments"
        agent["command"] = click.prompt(question, value_proc=parse_command)
    elif kind == "http":
        agent["url"] = click.prompt("Address of your web service", value_proc=check_address)
    return agent


def parse_command(line: str) -> list[str]:
    """Split a program and its arguments, quoted as in a shell; raise UsageError if it cannot."""
    try:
        command = shlex.split(line)
    except ValueError:
        raise click.UsageError("A quote is not closed.") from None
    if not command:
        raise click.UsageError("Name a program.")
    return command


def check_address(address: str) -> str:
    """Return an address in the form that an agent accepts, or an empty one.

    Raise UsageError for any other text, so that no unusable address is written to the file.
    """
    from tertulia.agents.transport import validate_url

    try:
        return validate_url(address)[0] if address else address
    except ConfigError as problem:
        raise click.UsageError(f"{problem.message} {problem.hint}") from None


def config_text(agent: dict[str, object]) -> str:
    """Return the text of a configuration file with these keys in the section [agent].

    Values are written as JSON: a JSON string or list of strings is also TOML.
    """
    return "\n".join([_HEAD, "[agent]", *_key_lines(agent), *_agent_examples(agent), _REST])


def _key_lines(section: Mapping[str, object]) -> list[str]:
    return [f"{name} = {json.dumps(value)}" for name, value in section.items()]


def write_config(path: str, text: str, *, is_forced: bool = False) -> None:
    """Write a file, readable by this user only.

    It is written whole or not at all: a crash or a full disk leaves what was there before. Raise
    ConfigError if it cannot be written, or if it exists and `is_forced` is false.
    """
    target = os.path.realpath(path)  # a link stays a link
    if os.path.lexists(target) and not os.path.isfile(target):
        raise _write_error(path, "it is not a regular file")
    folder = os.path.dirname(target)
    try:
        make_private_folder(folder)
    except OSError as problem:
        raise _write_error(path, _reason(problem)) from problem
    try:
        number, partial = tempfile.mkstemp(dir=folder, prefix=".config-")
        try:
            with open(number, "w", encoding="utf-8") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            if not is_forced:
                os.close(os.open(target, os.O_CREAT | os.O_EXCL, 0o600))
            os.replace(partial, target)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(partial)
    except FileExistsError:
        raise _exists_error(path) from None
    except OSError as problem:
        raise _write_error(path, str(problem.strerror)) from problem


def _require_writable(path: str) -> None:
    """Raise ConfigError if the file cannot be written, before anybody answers questions for it."""
    place = os.path.abspath(path)
    while not os.path.exists(place):
        place = os.path.dirname(place)
    if not os.access(place, os.W_OK):
        raise _write_error(path, os.strerror(errno.EACCES))


def _reason(problem: OSError) -> str:
    """Return why a folder cannot be created; that it "exists" means a file of that name."""
    if isinstance(problem, FileExistsError):
        return f"{problem.filename} is not a folder"
    return str(problem.strerror)


def _write_error(path: str, reason: str) -> ConfigError:
    return ConfigError(
        f"{path} cannot be written: {reason}.",
        hint="Choose another path with --config or TERTULIA_CONFIG.",
        field="config",
    )


def _exists_error(path: str) -> ConfigError:
    return ConfigError(
        f"There is already a configuration at {path}.",
        hint=f"Show it with: tertulia config show --config {shlex.quote(path)}. "
        "Overwrite it with --force.",
        field="config",
    )


def _agent_examples(agent: dict[str, object]) -> list[str]:
    """Return comments that show other agents, if this is the default one."""
    from tertulia.config.schema import Config

    if agent != {"kind": Config().agent.kind}:
        return []
    return [
        '# kind = "openai"         # or "anthropic", "command", "http"',
        '# model = "gpt-5-mini"',
        '# base_url = "http://localhost:11434/v1"   # any server with OpenAI\'s API',
        '# api_key_env = "OPENAI_API_KEY"           # the variable that contains the key',
    ]
