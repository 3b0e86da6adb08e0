"""Build the objects that a configuration names: agent, adapters, HTTP settings, environment."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from tertulia.agents.base import Agent
from tertulia.config.schema import AgentConfig, Config, ProcessesConfig, WebhookConfig
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

    section = config.platforms["webhook"]
    assert isinstance(section, WebhookConfig)
    return WebhookAdapter(
        section.resolve_secret(), url=section.url, is_idempotent=section.is_idempotent
    )


BUILDERS: dict[str, Builder] = {"web": _web, "webhook": _webhook}
"""The builder of each platform's adapter. `tertulia run` builds that of the terminal itself."""

_SHARED_KEYS = ("history_tokens", "max_steps", "tool_seconds", "limits", "retry", "headers")


def build_agent(config: AgentConfig) -> Agent:
    """Return the agent that the configuration names."""
    # Import each agent only when it is used: most of them load a network library.
    if config.kind == "parrot":
        from tertulia.agents.parrot import ParrotAgent

        return ParrotAgent(tool_seconds=config.tool_seconds)
    if config.kind == "command":
        from tertulia.agents.command import CommandAgent

        return CommandAgent(
            config.command,
            cwd=config.folder,
            env=_environment_variables(config),
            format=config.format,
            **_shared(config, "headers", "retry"),
        )
    if config.kind == "http":
        from tertulia.agents.http import HttpAgent

        assert config.url is not None
        return HttpAgent(config.url, format=config.format, **_shared(config))
    return _model_agent(config)


def _model_agent(config: AgentConfig) -> Agent:
    from tertulia.agents.anthropic import AnthropicAgent
    from tertulia.agents.openai import OpenAIAgent

    assert config.model is not None
    names = ("base_url", "max_tokens", "provider")
    optional = {n: getattr(config, n) for n in names if getattr(config, n) is not None}
    kind: Callable[..., Agent] = OpenAIAgent if config.kind == "openai" else AnthropicAgent
    return kind(
        config.model,
        api_key=config.resolve_api_key(),
        instructions=config.instructions,
        options=config.options,
        **optional,
        **_shared(config),
    )


def build_adapters(config: Config) -> list[Adapter]:
    """Return the adapter of every enabled platform except the terminal.

    Raises `ConfigError` for a platform without an adapter.
    """
    adapters = []
    for name, section in config.platforms.items():
        if not section.enabled or name == "local":
            continue
        if name not in BUILDERS:
            raise ConfigError(
                f"platforms.{name}: this version has no adapter for this platform.",
                hint=f"Remove it, or set: enabled = false under [platforms.{name}]",
                field=f"platforms.{name}",
            )
        adapters.append(BUILDERS[name](config))
    return adapters


def build_http_settings(config: Config) -> HttpSettings | None:
    """Return the settings of the HTTP server; None if it is not enabled.

    Raises `ConfigError` if a platform needs the server and it is not enabled.
    """
    section = config.http
    needs_http = [name for name in ("web", "webhook") if _is_enabled(config, name)]
    if not section.enabled:
        if needs_http:
            raise ConfigError(
                f"platforms.{needs_http[0]} is reached over HTTP, which is not enabled.",
                hint="Set: enabled = true under [http]",
                field="http.enabled",
            )
        return None
    from tertulia.http.settings import HttpSettings, Token

    return HttpSettings(
        host=section.host,
        port=section.port,
        tokens=tuple(
            Token(name=token.name, role=token.role, secret=token.resolve_secret())
            for token in section.tokens
        ),
        max_body=section.max_body,
        rate=section.requests_per_minute,
    )


def check(config: Config) -> None:
    """Build what `tertulia run` would use, and discard it; raise `ConfigError` for any mistake."""
    build_agent(config.agent)
    build_adapters(config)
    build_http_settings(config)


def _is_enabled(config: Config, name: str) -> bool:
    section = config.platforms.get(name)
    return section is not None and section.enabled


def _shared(config: AgentConfig, *without: str) -> dict[str, Any]:
    return {name: getattr(config, name) for name in _SHARED_KEYS if name not in without}


def _environment_variables(config: AgentConfig) -> dict[str, str] | None:
    return {**os.environ, **config.variables} if config.variables else None


def build_environment(config: ProcessesConfig, work: str) -> Environment | None:
    """Return the environment in which processes run; None if they run on this machine.

    `work` is their folder on this machine.
    """
    from tertulia.processes.environments.docker import DockerContainer, DockerImage
    from tertulia.processes.environments.ssh import SshHost

    if config.ssh is not None:
        return SshHost(**asdict(config.ssh))
    if config.docker is None:
        return None
    if config.docker.image is not None:
        return DockerImage(config.docker.image, folder=work, options=config.docker.options)
    return DockerContainer(config.docker.container or "")
