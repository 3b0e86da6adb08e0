"""Build the objects that a configuration names: agent, adapters, HTTP settings, environment."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tertulia.agents import (
    Agent,
    AnthropicAgent,
    CommandAgent,
    HttpAgent,
    OpenAIAgent,
    ParrotAgent,
)
from tertulia.agents.fallback import FallbackAgent
from tertulia.config.schema import (
    AccountSection,
    AgentSection,
    Config,
    HttpSection,
    ProcessesSection,
)
from tertulia.core.source import LOCAL
from tertulia.errors import ConfigError
from tertulia.gateway.image_describer import ImageDescriber
from tertulia.platforms.base import Adapter
from tertulia.platforms.definition import BuildContext, PlatformDefinition
from tertulia.platforms.registry import PLATFORMS

if TYPE_CHECKING:
    from tertulia.processes.environments.base import Environment

_AGENTS: dict[str, Any] = {
    "parrot": ParrotAgent,
    "openai": OpenAIAgent,
    "anthropic": AnthropicAgent,
    "command": CommandAgent,
    "http": HttpAgent,
}


def build_agent(options: AgentSection) -> Agent:
    """Return the agent of that kind."""
    agent: Agent = _AGENTS[options.kind](options)
    return agent


def build_main_agent(config: Config) -> Agent:
    """Return the agent that answers, with those that stand in for it.

    Raises `ConfigError` if one of them is not configured.
    """
    names = config.agent.fallback
    for name in names:
        if name not in config.agents:
            raise ConfigError(
                f"agent.fallback names the agent {name!r}, which is not configured.",
                hint=f"Add the section [agents.{name}].",
                field="agent.fallback",
            )
    agent = build_agent(config.agent)
    others = [build_agent(config.agents[name]) for name in names]
    return FallbackAgent([agent, *others]) if others else agent


def build_describer(config: Config) -> ImageDescriber | None:
    """Return what describes images for models without vision; None if no agent is named.

    Raises `ConfigError` if there is no agent of that name.
    """
    name = config.media.describe
    if name is None:
        return None
    if name not in config.agents:
        raise ConfigError(
            f"media.describe names the agent {name!r}, which is not configured.",
            hint=f"Add the section [agents.{name}].",
            field="media.describe",
        )
    return ImageDescriber(build_agent(config.agents[name]))


def build_adapter(
    section: AccountSection, folder: str, environ: Mapping[str, str] | None = None
) -> Adapter:
    """Return the adapter of an account; `folder` contains the folder of each platform's state.

    Raises `ConfigError` for a platform without an adapter, or a wrong setting.
    """
    name, account, settings = section
    context = BuildContext(
        name=name,
        account=account,
        settings=settings,
        folder=os.path.join(folder, name, account),
        environ=os.environ if environ is None else environ,
    )
    definition = PLATFORMS[name] if name in PLATFORMS else PlatformDefinition(name)
    adapter = definition.build_adapter(context)
    if account and adapter.account != account:
        # The platform's own account name would make sources that no section belongs to.
        raise ConfigError(
            f"{context.section}: {name} has no accounts.",
            hint=f"Use the section [platforms.{name}].",
            field=context.section,
        )
    return adapter


def build_adapters(config: Config, folder: str) -> list[Adapter]:
    """Return the adapter of every enabled account except the terminal.

    `tertulia run` builds that of the terminal itself, if there is a terminal.
    """
    return [
        build_adapter(account, folder)
        for account in config.accounts()
        if account.section.enabled and account.name != LOCAL
    ]


def build_http_settings(config: Config, adapters: Sequence[Adapter]) -> HttpSection | None:
    """Return the settings of the HTTP server; None if it is not enabled.

    Raises `ConfigError` if an adapter needs the server and it is not enabled, or if the variable of
    a token is empty.
    """
    if config.http.enabled:
        config.http.check_secrets()
        return config.http
    for adapter in adapters:
        if adapter.needs_http:
            raise ConfigError(
                f"platforms.{adapter.name} is reached over HTTP, which is not enabled.",
                hint="Set: enabled = true under [http]",
                field="http.enabled",
            )
    return None


def find_problems(config: Config, folder: str) -> list[ConfigError]:
    """Build what `tertulia run` would use, discard it, and return everything that was wrong."""
    problems: list[ConfigError] = []
    adapters: list[Adapter] = []
    with _collect(problems):
        build_main_agent(config)
    for options in config.agents.values():
        with _collect(problems):
            build_agent(options)
    with _collect(problems):
        build_describer(config)
        if config.media.transcription is not None:
            config.media.transcription.resolve_api_key()
    for account in config.accounts():
        if account.section.enabled and account.name != LOCAL:
            with _collect(problems):
                adapters.append(build_adapter(account, folder))
    with _collect(problems):
        build_http_settings(config, adapters)
    return problems


@contextmanager
def _collect(problems: list[ConfigError]) -> Iterator[None]:
    try:
        yield
    except ConfigError as problem:
        problems.append(problem)


def build_environment(config: ProcessesSection, work: str) -> Environment | None:
    """Return the environment in which processes run; None if they run on this machine.

    `work` is their folder on this machine.
    """
    from tertulia.processes.environments.docker import DockerContainer, DockerImage
    from tertulia.processes.environments.ssh import SshHost

    if config.ssh is not None:
        return SshHost(config.ssh)
    if config.docker is None:
        return None
    if config.docker.image is not None:
        return DockerImage(config.docker.image, folder=work, options=config.docker.options)
    return DockerContainer(config.docker.container or "")
