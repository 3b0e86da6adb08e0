"""From a configuration to what it names: the agent, the adapters, and where programs run."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from tertulia.agents.base import Agent
from tertulia.config.schema import (
    AgentConfig,
    Config,
    ProcessesConfig,
    WebhookConfig,
)
from tertulia.errors import ConfigError
from tertulia.platforms.base import Adapter

if TYPE_CHECKING:
    from tertulia.http.settings import HttpSettings
    from tertulia.processes.environments.base import Environment

Builder = Callable[[Config], Adapter]


def _web(config: Config) -> Adapter:
    from tertulia.platforms.web import WebAdapter

    return WebAdapter()


def _webhook(config: Config) -> Adapter:
    from tertulia.platforms.webhook import WebhookAdapter

    given = config.platforms["webhook"]
    assert isinstance(given, WebhookConfig)
    return WebhookAdapter(given.key(), url=given.url, is_idempotent=given.is_idempotent)


BUILDERS: dict[str, Builder] = {"web": _web, "webhook": _webhook}
"""How the adapter of a platform is made; the terminal's is made by whoever has the terminal."""

_SHARED = ("history_tokens", "max_steps", "tool_seconds", "limits", "retry", "headers")


def agent_of(given: AgentConfig) -> Agent:
    """The agent that the configuration names."""
    # Each is loaded only where it is wanted: most have the network behind them.
    if given.kind == "parrot":
        from tertulia.agents.parrot import ParrotAgent

        return ParrotAgent(tool_seconds=given.tool_seconds)
    if given.kind == "command":
        from tertulia.agents.command import CommandAgent

        return CommandAgent(given.command, cwd=given.folder, env=_variables(given),
                            format=given.format, **_shared(given, "headers", "retry"))  # fmt: skip
    if given.kind == "http":
        from tertulia.agents.http import HttpAgent

        assert given.url is not None
        return HttpAgent(given.url, format=given.format, **_shared(given))
    return _model(given)


def _model(given: AgentConfig) -> Agent:
    from tertulia.agents.anthropic import AnthropicAgent
    from tertulia.agents.openai import OpenAIAgent

    assert given.model is not None
    names = ("base_url", "max_tokens", "provider")
    set_ones = {n: getattr(given, n) for n in names if getattr(given, n) is not None}
    kind: Callable[..., Agent] = OpenAIAgent if given.kind == "openai" else AnthropicAgent
    return kind(
        given.model,
        api_key=given.key(),
        instructions=given.instructions,
        options=given.options,
        **set_ones,
        **_shared(given),
    )


def adapters_of(config: Config) -> list[Adapter]:
    """The adapters of every platform that is enabled, but for the terminal."""
    found = []
    for name, section in config.platforms.items():
        if not section.enabled or name == "local":
            continue
        if name not in BUILDERS:
            raise ConfigError(
                f"platforms.{name}: this version has no adapter for it.",
                hint=f"Remove it, or set: enabled = false under [platforms.{name}]",
                field=f"platforms.{name}",
            )
        found.append(BUILDERS[name](config))
    return found


def http_of(config: Config) -> HttpSettings | None:
    """How the gateway is reached over HTTP; None where it is not."""
    given = config.http
    needs_http = [name for name in ("web", "webhook") if _is_served(config, name)]
    if not given.enabled:
        if needs_http:
            raise ConfigError(
                f"platforms.{needs_http[0]} is reached over HTTP, which is not enabled.",
                hint="Set: enabled = true under [http]",
                field="http.enabled",
            )
        return None
    from tertulia.http.settings import HttpSettings, Token

    return HttpSettings(
        host=given.host,
        port=given.port,
        tokens=tuple(
            Token(name=token.name, role=token.role, secret=token.secret()) for token in given.tokens
        ),
        max_body=given.max_body,
        rate=given.requests_per_minute,
    )


def check(config: Config) -> None:
    """Make what `tertulia run` would serve with, and serve nothing: what is wrong is raised."""
    agent_of(config.agent)
    adapters_of(config)
    http_of(config)


def _is_served(config: Config, name: str) -> bool:
    section = config.platforms.get(name)
    return section is not None and section.enabled


def _shared(given: AgentConfig, *without: str) -> dict[str, Any]:
    return {name: getattr(given, name) for name in _SHARED if name not in without}


def _variables(given: AgentConfig) -> dict[str, str] | None:
    return {**os.environ, **given.variables} if given.variables else None


def environment_of(given: ProcessesConfig, work: str) -> Environment | None:
    """Where programs run, if that is not here; `work` is their folder on this machine."""
    from tertulia.processes.environments.docker import DockerContainer, DockerImage
    from tertulia.processes.environments.ssh import SshHost

    if given.ssh is not None:
        return SshHost(**asdict(given.ssh))
    if given.docker is None:
        return None
    if given.docker.image is not None:
        return DockerImage(given.docker.image, folder=work, options=given.docker.options)
    return DockerContainer(given.docker.container or "")
