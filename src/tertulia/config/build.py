"""Build the objects that a configuration names: agent, adapters, HTTP settings, environment."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tertulia.agents import (
    Agent,
    AnthropicAgent,
    CommandAgent,
    HttpAgent,
    OpenAIAgent,
    ParrotAgent,
)
from tertulia.agents.agent_options import ModelOptions
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
from tertulia.gateway.agent_table import AgentTable, ConfiguredAgent, PromptFiles
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


def build_agents(config: Config, data_folder: str) -> AgentTable:
    """Return every agent, the main one first, each with its models and its fallbacks.

    Raises `ConfigError` if a key is not set, or a prompt file cannot be used.
    """
    work = work_folder(config.processes, data_folder)
    return AgentTable(
        _build_entry(config, section, options, work) for section, options in config.agent_sections()
    )


def _build_entry(config: Config, section: str, options: AgentSection, work: str) -> ConfiguredAgent:
    """Return one agent; raise a `ConfigError` that names its section."""
    try:
        return _build_options(config, section, options, work)
    except ConfigError as problem:
        # Options do not know the section that they are in, and name [agent].
        field = f"{section}.{(problem.field or '').removeprefix('agent.')}".rstrip(".")
        text = problem.message
        message = f"{section}{text.removeprefix('agent')}" if text.startswith("agent.") else text
        raise ConfigError(message, hint=problem.hint, field=field) from problem


def _build_options(
    config: Config, section: str, options: AgentSection, work: str
) -> ConfiguredAgent:
    agent = build_agent(options)
    others = [build_agent(_options_of(config, name)) for name in options.fallback]
    models: dict[str, Agent] = {}
    if isinstance(options, ModelOptions) and options.models:
        for model in dict.fromkeys((options.model, *options.models)):
            # Whoever chooses a model wants that one: it has no fallback.
            models[model] = build_agent(replace(options, model=model))
    return ConfiguredAgent(
        name=config.store.agent if options is config.main_agent else section.partition(".")[2],
        agent=FallbackAgent([agent, *others]) if others else agent,
        models=models,
        tools=options.tools,
        role=options.role,
        prompt=_build_prompt(config, options, work),
    )


def _options_of(config: Config, name: str) -> AgentSection:
    return config.main_agent if name == config.store.agent else config.agents[name]


def _build_prompt(config: Config, options: AgentSection, work: str) -> PromptFiles | None:
    """Return the prompt files of an agent; refuse those that its tools could change."""
    if not options.prompt_files:
        return None
    if config.processes.enabled and config.processes.ssh is None:
        for path in options.prompt_files:
            if Path(path).resolve().is_relative_to(Path(work).resolve()):
                raise ConfigError(
                    f"The prompt file {path} can be changed by programs of the agent.",
                    hint=f"Keep it outside of {work}.",
                    field="prompt_files",
                )
    return PromptFiles(options.prompt_files)


def build_describer(config: Config) -> ImageDescriber | None:
    """Return the agent that describes images for models without vision; None if none is named."""
    name = config.media.describe
    if name is None:
        return None
    return ImageDescriber(build_agent(_options_of(config, name)))


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


def find_problems(config: Config, data_folder: str) -> list[ConfigError]:
    """Build what `tertulia run` would use, discard it, and return everything that was wrong."""
    work = work_folder(config.processes, data_folder)
    problems: list[ConfigError] = []
    adapters: list[Adapter] = []
    for section, options in config.agent_sections():
        with _collect(problems):
            _build_entry(config, section, options, work)
    with _collect(problems):
        build_describer(config)
        if config.media.transcription is not None:
            config.media.transcription.resolve_api_key()
    for account in config.accounts():
        if account.section.enabled and account.name != LOCAL:
            with _collect(problems):
                adapters.append(build_adapter(account, os.path.join(data_folder, "platforms")))
    with _collect(problems):
        build_http_settings(config, adapters)
    return problems


@contextmanager
def _collect(problems: list[ConfigError]) -> Iterator[None]:
    try:
        yield
    except ConfigError as problem:
        problems.append(problem)


def work_folder(config: ProcessesSection, data_folder: str) -> str:
    """Return the working directory of the agent's programs on this machine."""
    return config.folder or os.path.join(data_folder, "work")


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
