"""The sections of the configuration.

The configuration is one TOML file; environment variables override the file, and command-line
options override both. Every key is optional: each section has defaults that work. A section is the
settings class of its module; a class here only adds the keys that the programs `run` and `chat`
need. `load.py` reads them, and reports a mistake with its file, its line and the closest valid name
before anything is started.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from tertulia.agents.agent_options import (
    AnthropicOptions,
    CommandAgentOptions,
    HttpAgentOptions,
    OpenAIOptions,
    ParrotOptions,
)
from tertulia.core.agent_route import AgentRoute
from tertulia.core.approval import ApprovalSettings
from tertulia.core.settings import FilePath, Settings
from tertulia.core.source import LOCAL
from tertulia.core.target import HomeChannel
from tertulia.errors import ConfigError
from tertulia.gateway.settings import GatewaySettings, LogSettings, MediaSettings
from tertulia.http.settings import HttpSettings
from tertulia.mcp.settings import McpSettings
from tertulia.platforms.registry import PLATFORMS
from tertulia.platforms.settings import PlatformSection, PlatformSettings
from tertulia.processes.settings import DockerSettings, ProcessSettings, SshSettings

AgentSection = (
    ParrotOptions | OpenAIOptions | AnthropicOptions | CommandAgentOptions | HttpAgentOptions
)
"""The section [agent]: the options of one kind of agent, chosen by the key `kind`."""

_AGENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")


class StoreSection(Settings, frozen=True, kw_only=True):
    """The store: its location and its behaviour.

    where   a path, sqlite:///path or postgresql://…; a relative path starts at the folder of the
            configuration file; default: talk.db in the data folder
    """

    where: Annotated[str, Meta(extra={"is_address": True, "is_path": True})] | None = None


class GatewaySection(GatewaySettings, frozen=True, kw_only=True):
    """The gateway: how messages are answered."""


class HttpSection(HttpSettings, frozen=True, kw_only=True):
    """The HTTP server.

    enabled       whether `tertulia run` serves HTTP
    owner_token   without tokens: whether `tertulia run` makes one for the owner, in the file
                  owner-token of the data folder; if false, every program of this machine is the
                  owner
    """

    enabled: bool = False
    owner_token: bool = True


class ProcessesSection(ProcessSettings, frozen=True, kw_only=True):
    """Background programs of the agent: on this machine as the gateway's user, by ssh or in Docker.

    enabled   whether the agent has the tools terminal and process
    folder    the working directory of programs; any directory outside of it is refused; default: a
              folder in the data folder
    ssh       another machine on which programs run
    docker    a container in which programs run
    """

    enabled: bool = False
    folder: FilePath | None = None
    ssh: SshSettings | None = None
    docker: DockerSettings | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ssh is not None and self.docker is not None:
            raise ConfigError(
                "Processes can run in one place only, but ssh and docker are both set.",
                hint="Give ssh or docker, not both.",
                field="docker",
            )
        if self.ssh is not None and self.folder is not None:
            raise ConfigError(
                "folder is a path on this machine, where nothing is run if ssh is set.",
                hint="Set processes.ssh.folder instead.",
                field="folder",
            )


class AccountSection(NamedTuple):
    """One account of a platform and its section; the account "" is [platforms.NAME] itself."""

    name: str
    account: str
    section: PlatformSection


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """The whole configuration."""

    store: StoreSection = StoreSection()
    gateway: GatewaySection = GatewaySection()
    agent: AgentSection = ParrotOptions()
    agents: Mapping[str, AgentSection] = {}
    routes: tuple[AgentRoute, ...] = ()
    media: MediaSettings = MediaSettings()
    platforms: Mapping[str, PlatformSection] = {}
    http: HttpSection = HttpSection()
    processes: ProcessesSection = ProcessesSection()
    approvals: ApprovalSettings = ApprovalSettings()
    mcp: McpSettings = McpSettings()
    log: LogSettings = LogSettings()

    def __post_init__(self) -> None:
        main = self.store.agent
        for name in self.agents:
            if not _AGENT_NAME.fullmatch(name):
                raise ConfigError(
                    f"{name!r} cannot be the name of an agent.",
                    hint="Use up to 32 letters, digits, '-' and '_'.",
                    field="agents",
                )
        if main in self.agents and self.agent != ParrotOptions():
            raise ConfigError(
                f"[agent] and [agents.{main}] are the same agent.",
                hint=f"Keep [agents.{main}] only.",
                field="agent",
            )
        self._require_named_agents()

    def _require_named_agents(self) -> None:
        """Raise `ConfigError` if a key names an agent that is not configured."""
        names = {self.store.agent, *self.agents}
        references = [(f"routes[{n}]", route.agent) for n, route in enumerate(self.routes)]
        for section, options in self.agent_sections():
            references += [(f"{section}.fallback", name) for name in options.fallback]
        if self.media.describe is not None:
            references.append(("media.describe", self.media.describe))
        for field, name in references:
            if name not in names:
                raise ConfigError(
                    f"{field} names the agent {name!r}, which is not configured.",
                    hint=f"Add the section [agents.{name}].",
                    field=field,
                )

    @property
    def main_agent(self) -> AgentSection:
        """The options of the main agent: [agents.main] or [agent]."""
        return self.agents.get(self.store.agent, self.agent)

    def agent_sections(self) -> Iterator[tuple[str, AgentSection]]:
        """Yield the section and the options of every agent, the main one first."""
        main = self.store.agent
        yield f"agents.{main}" if main in self.agents else "agent", self.main_agent
        for name, options in self.agents.items():
            if name != main:
                yield f"agents.{name}", options

    @property
    def store_settings(self) -> Settings:
        """The settings to open the store with."""
        enabled = {account.name for account in self.accounts() if account.section.enabled}
        # The location may contain a password, and is not needed any more.
        return replace(
            self.store,
            where=None,
            agents=tuple(name for name in self.agents if name != self.store.agent),
            routes=self.routes,
            homes={**self._homes(), **self.store.homes},
            platforms=tuple(sorted(enabled - {LOCAL})),
        )

    def _homes(self) -> dict[str, HomeChannel]:
        """Return the first home that the accounts of each platform name."""
        homes: dict[str, HomeChannel] = {}
        for name, account, section in self.accounts():
            if isinstance(section, PlatformSettings) and section.home and section.enabled:
                homes.setdefault(name, HomeChannel(section.home, account=account))
        return homes

    def accounts(self) -> Iterator[AccountSection]:
        """Yield every account of every platform with its section, also disabled ones."""
        for name, section in self.platforms.items():
            if not section.accounts or type(section) is not PlatformSection:
                yield AccountSection(name, "", section)
            for account, inner in section.accounts.items():
                yield AccountSection(name, account, inner)

    @property
    def gateway_settings(self) -> GatewaySettings:
        """The settings of the gateway and its platforms."""
        return replace(
            self.gateway,
            platforms={
                (account.name, account.account): account.section
                for account in self.accounts()
                if isinstance(account.section, PlatformSettings)
            },
            approvals=self.approvals,
            media=self.media,
            token_roles=self.http.token_roles if self.http.enabled or self.http.tokens else {},
        )

    def platform(self, name: str) -> PlatformSection:
        """Return the section of a platform, or its defaults."""
        return self.platforms.get(name) or PLATFORMS[name].settings()
