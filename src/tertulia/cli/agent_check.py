"""Checks of `tertulia doctor` that concern the configuration: agent, packages, port."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec

from tertulia.agents.agent_options import CommandAgentOptions, ModelOptions
from tertulia.agents.base import Agent, Request, Step, running
from tertulia.agents.transport import validate_url
from tertulia.cli import locations
from tertulia.cli.finding import Finding
from tertulia.cli.options import CommandOptions
from tertulia.config import build, load
from tertulia.config.schema import AgentSection, Config
from tertulia.core.text.excerpt import one_line
from tertulia.errors import AgentFailed, Error
from tertulia.install_command import install_command

_SECONDS = 5
_QUESTION = "Are you there? Answer with one word."
_MAX_BYTES = 5_000_000


def check_configuration(options: CommandOptions) -> Iterator[Finding]:
    """Check the configuration, and what it names: agent, key, program, packages, port."""
    path = locations.existing_config_path(options)
    problems = load.find_problems(path, os.environ)
    for problem in problems:
        yield Finding("configuration", "problem", problem.message, problem.hint)
    if problems:
        return
    yield Finding("configuration", "ok", path or "no file: the default settings")
    config = load.load_config(path, os.environ).config
    yield from _agents(config, path)
    for problem in build.find_problems(config, locations.data_folder()):
        if not (problem.field or "").startswith("agent"):
            yield Finding("platforms", "problem", problem.message, problem.hint)
    if config.http.enabled:
        yield from _http(config)


def ask_agent(options: CommandOptions) -> Finding:
    """Let the main agent answer a short question, and return whether it did."""
    config = load.load_config(locations.existing_config_path(options), os.environ).config
    agents = build.build_agents(config, locations.data_folder())

    async def ask() -> str:
        try:
            return await _answer_of(agents.main.agent)
        finally:
            await agents.close()

    began_at = time.monotonic()
    try:
        answer = asyncio.run(ask())
    except Error as problem:
        return Finding("answer", "problem", problem.message, problem.hint)
    seconds = time.monotonic() - began_at
    return Finding("answer", "ok", f"{one_line(answer, 60)} ({seconds:.1f} s)")


async def _answer_of(agent: Agent) -> str:
    async def history(**_: object) -> list[dict[str, object]]:
        return [{"role": "user", "content": _QUESTION}]

    async with running(agent, Request(text=_QUESTION, history=history)) as events:
        async for event in events:
            if isinstance(event, Step) and not event.tool_calls and event.text:
                return event.text
    raise AgentFailed("The agent ended without an answer.", hint="Look at its model or program.")


def _agents(config: Config, path: str | None) -> Iterator[Finding]:
    """Check every agent: whether it can be built, and whether its server or program is there."""
    problems = [
        problem
        for problem in build.find_problems(config, locations.data_folder())
        if (problem.field or "").startswith("agent")
    ]
    for problem in problems:
        yield Finding("agent", "problem", problem.message, problem.hint)
    for section, options in config.agent_sections():
        if any((problem.field or "").startswith(f"{section}.") for problem in problems):
            continue  # told above
        name = "agent" if options is config.main_agent else section
        yield _agent(options, path)._replace(name=name)


def _agent(agent: AgentSection, path: str | None) -> Finding:
    if isinstance(agent, CommandAgentOptions):
        return _program(agent, path)
    if isinstance(agent, ModelOptions):
        return _model(agent)
    return Finding("agent", "ok", agent.kind)


def _program(agent: CommandAgentOptions, path: str | None) -> Finding:
    program = agent.command[0]
    folder = agent.folder or (os.path.dirname(os.path.abspath(path)) if path else None)
    is_path = os.sep in program
    where = os.path.join(folder, program) if is_path and folder else program
    if shutil.which(where) is None:
        return Finding(
            "agent",
            "problem",
            f"the program {program} is not there, or not executable",
            "Write its whole path into agent.command, or install it.",
        )
    return Finding("agent", "ok", f"the program {program}")


def _model(agent: ModelOptions) -> Finding:
    """Ask the server for its models: that costs nothing, and shows whether the key is right."""
    name = f"{agent.model} at {validate_url(agent.base_url)[1]}"
    url = f"{agent.base_url.rstrip('/')}/models"
    key = agent.resolve_api_key()
    headers = {**(agent.headers or {})}
    if agent.kind == "anthropic":
        headers |= {"x-api-key": key or "", "anthropic-version": "2023-06-01"}
    elif key:
        headers["Authorization"] = f"Bearer {key}"
    request = urllib.request.Request(url, headers=headers)  # noqa: S310  agents check the address
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as response:  # noqa: S310
            body = json.loads(response.read(_MAX_BYTES))
    except urllib.error.HTTPError as problem:
        return _http_problem(agent, name, problem.code)
    except (OSError, ValueError) as problem:
        return Finding(
            "agent",
            "problem",
            f"{name} cannot be reached: {_reason(problem)}",
            "Look at agent.base_url, the network, and whether the server runs.",
        )
    models = [item.get("id") for item in body.get("data", [])] if isinstance(body, dict) else []
    missing = [name for name in (agent.model, *agent.models) if models and name not in models]
    if missing:
        return Finding(
            "agent",
            "warning",
            f"the server does not list the model {', '.join(missing)}",
            f"It has for example: {', '.join(map(str, models[:5]))}.",
        )
    return Finding("agent", "ok", f"{name}; the key is accepted" if key else name)


def _reason(problem: OSError | ValueError) -> str:
    """Return why a server cannot be reached, in the words of the system."""
    cause = problem.reason if isinstance(problem, urllib.error.URLError) else problem
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted ({cause.verify_message})"
    if isinstance(cause, json.JSONDecodeError):
        return "its answer is not JSON"
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror.lower()
    return str(cause)


def _http_problem(agent: ModelOptions, name: str, status: int) -> Finding:
    if status in (401, 403):
        variable = agent.api_key_env or next(iter(agent.api_key_envs), "agent.api_key")
        return Finding(
            "agent",
            "problem",
            f"{name} refuses the key ({status})",
            f"Set {variable} to a key that is valid there.",
        )
    return Finding(
        "agent",
        "warning",
        f"{name} does not tell its models ({status})",
        'Try it: tertulia ask "Are you there?"',
    )


def _http(config: Config) -> Iterator[Finding]:
    missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
    if missing:
        yield Finding(
            "HTTP",
            "problem",
            f"{' and '.join(missing)} are not installed",
            f"Install it: {install_command('http')}",
        )
        return
    where = f"{config.http.host}, port {config.http.port}"
    family = socket.AF_INET6 if ":" in config.http.host else socket.AF_INET
    with socket.socket(family) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind((config.http.host, config.http.port))
        except OSError as problem:
            yield Finding(
                "HTTP",
                "warning",
                f"{where} cannot be used: {problem.strerror}",
                "If a gateway is running, that is right; else set another http.port.",
            )
            return
    yield Finding("HTTP", "ok", f"{where} is free")
