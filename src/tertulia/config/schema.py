"""The sections and keys of the configuration.

The configuration is one TOML file; environment variables override the file, and command-line
options override both. Every key is optional: each section has defaults that work. This module only
defines the keys. `load.py` reads them, and reports a mistake with its file, its line and the
closest valid name before anything is started.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tertulia.agents.transport import Limits, Retry
from tertulia.config.http_schema import HttpConfig, Secret, TokenConfig
from tertulia.core.budget import Budget
from tertulia.core.history.formats import Format
from tertulia.core.policy import Policies
from tertulia.core.settings import Durability, Settings
from tertulia.core.target import HomeChannel
from tertulia.errors import ConfigError
from tertulia.gateway.settings import (
    Admission,
    DuringTurn,
    GatewaySettings,
    Groups,
    PlatformSettings,
)
from tertulia.processes.settings import DEFAULT_DOCKER_OPTIONS, DEFAULT_VARIABLES, ProcessSettings
from tertulia.records.people import Role

__all__ = [
    "AgentConfig",
    "Config",
    "DockerConfig",
    "GatewayConfig",
    "HttpConfig",
    "LocalConfig",
    "LogConfig",
    "PlatformConfig",
    "ProcessesConfig",
    "Secret",
    "SshConfig",
    "StoreConfig",
    "TokenConfig",
]


class StoreConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The store: its location and its behaviour.

    where                     a path, sqlite:///path or postgresql://…; a relative path starts at
                              the folder of the configuration file; default: talk.db in the data
                              folder
    durability                "safe" survives power loss, "fast" only the end of the process
    zone                      the time zone of daily resets and of usage by day; default: that of
                              the machine
    policies                  when sessions end by themselves
    budgets                   limits; a turn over its budget is refused before its model is called
    homes                     the default chat of each platform
    group_sessions_per_user   whether each person in a group has a conversation of their own
    thread_sessions_shared    whether a thread is one conversation for everybody in it
    agent                     the name of the agent; the second part of every key
    redact_pii                whether ids and phone numbers leave the store as hashes only
    lease_seconds             how long a turn may be silent before another process may take it over
    remember                  whether sessions that a policy ended are queued to be written to
                              memory
    protection_hours          how long after its due end a running process keeps a session open
    busy_seconds              how long to wait while another program locks the file
    """

    where: Annotated[str, Meta(extra={"is_address": True})] | None = None
    durability: Durability = "safe"
    zone: str | None = None
    policies: Policies = Policies()
    budgets: tuple[Budget, ...] = ()
    homes: Mapping[str, HomeChannel] = {}
    group_sessions_per_user: bool = True
    thread_sessions_shared: bool = False
    agent: str = "main"
    redact_pii: bool = False
    lease_seconds: float = 60
    remember: bool = False
    protection_hours: float = 24
    busy_seconds: float = 30

    def __post_init__(self) -> None:
        self.settings(())

    def settings(self, platforms: tuple[str, ...]) -> Settings:
        """Return the settings to open the store with; `platforms` are the connected ones."""
        values = {name: getattr(self, name) for name in self.__struct_fields__ if name != "where"}
        return Settings(**values, platforms=platforms)


class GatewayConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The gateway: how messages are answered.

    meanwhile         what a message does that arrives during a turn: wait in the queue (queue),
                      end the turn (interrupt), or become part of it (steer)
    gather_seconds    messages that a person sends within this time are answered together
    turns             how many turns may run at the same time
    history_tokens    the largest history a model gets, in tokens
    history_messages  the largest history a model gets, in messages
    compact_turns     how many of the newest turns a compaction leaves unchanged
    tries             how many times a message is tried before it is given up
    sends             how many times a delivery is tried before it is given up
    watch_seconds     how often to look for sessions that their policy ends
    drain_seconds     how long running turns may continue after the program is asked to stop
    memory            the folder of the memory files of sessions that a policy ended, if
                      store.remember is on; default: a folder in the data folder
    """

    meanwhile: DuringTurn = "queue"
    gather_seconds: float = 0.0
    turns: int = 64
    history_tokens: int | None = None
    history_messages: int = 500
    compact_turns: int = 4
    tries: int = 5
    sends: int = 8
    watch_seconds: float = 300
    drain_seconds: float = 30
    memory: str | None = None

    def __post_init__(self) -> None:
        self.settings({})

    def settings(self, platforms: Mapping[str, PlatformSettings]) -> GatewaySettings:
        """Return the settings of the gateway, with those of its platforms."""
        values = {n: getattr(self, n) for n in self.__struct_fields__ if n != "memory"}
        return GatewaySettings(**values, platforms=platforms)


class PlatformConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One platform, and who is answered there. Each adapter adds keys of its own.

    enabled     whether `tertulia run` serves this platform
    admission   who may send direct messages: everyone, people the owner approved (paired), or only
                those in allow and owners (nobody)
    groups      when messages in a group are answered: if they address the agent (mention), always,
                or never
    allow       ids of people who are always answered
    owners      ids of people who may do everything
    """

    enabled: bool = True
    admission: Admission = "paired"
    groups: Groups = "mention"
    allow: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()

    def settings(self) -> PlatformSettings:
        """Return the access settings of this platform."""
        return PlatformSettings(
            admission=self.admission, groups=self.groups, allow=self.allow, owners=self.owners
        )


class LocalConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The terminal of this machine. The person who uses it is the owner.

    enabled   whether `tertulia run` answers in its terminal, if it has one
    history   the file with the lines typed before; default: a file in the state folder; "": no file
    """

    enabled: bool = True
    history: str | None = None


class WebhookConfig(PlatformConfig, frozen=True, kw_only=True):
    """Another program that posts signed messages and receives signed answers.

    secret          the secret both sides sign with; better kept out of the file
    secret_env      the environment variable that contains it
    url             the address answers are posted to; default: no answer is sent
    is_idempotent   whether that program ignores a delivery it has already received
    """

    secret: Secret | None = None
    secret_env: str | None = None
    url: str | None = None
    is_idempotent: bool = False

    def resolve_secret(self) -> str:
        """Return the secret from the file or the environment; raise `ConfigError` if unset."""
        secret = self.secret or os.environ.get(self.secret_env or "")
        if not secret:
            raise ConfigError(
                "platforms.webhook: there is no secret to sign with.",
                hint='Name the variable that contains it: secret_env = "WEBHOOK_SECRET"',
                field="platforms.webhook",
            )
        return secret


PLATFORM_SECTIONS: dict[str, type[msgspec.Struct]] = {
    "local": LocalConfig,
    "webhook": WebhookConfig,
}
"""The types of the sections [platforms.NAME]; other platforms have a `PlatformConfig`."""

_MODEL_KEYS = ("model", "base_url", "api_key", "api_key_env", "instructions", "max_tokens",
               "options", "headers", "history_tokens", "max_steps", "tool_seconds", "limits",
               "retry")  # fmt: skip
_ALLOWED_KEYS = {
    "parrot": ("tool_seconds",),
    "openai": (*_MODEL_KEYS, "provider"),
    "anthropic": (*_MODEL_KEYS, "provider"),
    "command": ("command", "folder", "variables", "format", "history_tokens", "max_steps",
                "tool_seconds", "limits"),
    "http": ("url", "headers", "format", "history_tokens", "max_steps", "tool_seconds", "limits",
             "retry"),
}  # fmt: skip
_REQUIRED_KEY = {"openai": "model", "anthropic": "model", "command": "command", "http": "url"}


class AgentConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The agent that answers. The allowed keys depend on the kind.

    kind             parrot: no model, shows its own input; openai: any endpoint with OpenAI's chat
                     completions API; anthropic: Anthropic's API; command: a program that uses
                     stdin and stdout; http: an endpoint of your own
    model            (openai, anthropic) the name of the model
    base_url         (openai, anthropic) the address of the API; default: that of the provider
    api_key          (openai, anthropic) the API key; better kept out of the file
    api_key_env      (openai, anthropic) the environment variable that contains the API key
    provider         (openai, anthropic) the provider whose prices are used
    instructions     (openai, anthropic) the first part of the system prompt
    max_tokens       (openai, anthropic) the longest answer, in tokens
    options          (openai, anthropic) sent unchanged with every call
    headers          (openai, anthropic, http) sent with every call
    url              (http) the address of the endpoint
    command          (command) the program and its arguments
    folder           (command) the working directory of the program
    variables        (command) environment variables added to those of the gateway
    format           (command, http) the format of the history
    history_tokens   the largest history that is sent, in tokens
    max_steps        how many model calls one answer may take
    tool_seconds     how long a tool may take
    limits           how long an answer may take, in seconds, and how large it may be, in bytes
    retry            how often, and how soon, a failed call is repeated
    """

    kind: Literal["parrot", "openai", "anthropic", "command", "http"] = "parrot"
    model: str | None = None
    base_url: Annotated[str, Meta(extra={"is_address": True})] | None = None
    api_key: Secret | None = None
    api_key_env: str | None = None
    provider: str | None = None
    instructions: str = ""
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    options: Mapping[str, Any] = {}
    headers: Mapping[str, Secret] = {}
    url: Annotated[str, Meta(extra={"is_address": True})] | None = None
    # The arguments of a program may contain a secret.
    command: Annotated[tuple[str, ...], Meta(extra={"is_command": True})] = ()
    folder: str | None = None
    variables: Mapping[str, Secret] = {}
    format: Format = "openai"
    history_tokens: Annotated[int, Meta(ge=1)] | None = None
    max_steps: Annotated[int, Meta(ge=1)] = 30
    tool_seconds: Annotated[float, Meta(gt=0)] = 300.0
    limits: Limits = Limits()
    retry: Retry = Retry()

    def __post_init__(self) -> None:
        required = _REQUIRED_KEY.get(self.kind)
        if required is not None and not getattr(self, required):
            raise ConfigError(
                f"An agent of the kind {self.kind!r} needs {required}.",
                hint=f"Set {required}.",
                field="kind",
            )
        for name in self.non_defaults():
            if name != "kind" and name not in _ALLOWED_KEYS[self.kind]:
                raise ConfigError(
                    f"An agent of the kind {self.kind!r} has no key {name}.",
                    hint=f"It takes: {', '.join(sorted(_ALLOWED_KEYS[self.kind]))}.",
                    field=name,
                )
        if self.api_key is not None and self.api_key_env is not None:
            raise ConfigError(
                "Both api_key and api_key_env are set.",
                hint="Give only one of them.",
                field="api_key_env",
            )

    def non_defaults(self) -> dict[str, Any]:
        """Return the values that differ from the defaults."""
        fields = msgspec.structs.fields(self)
        values = {field.name: getattr(self, field.name) for field in fields}
        defaults = {field.name: field.default for field in fields}
        for field in fields:
            if field.default_factory is not msgspec.NODEFAULT:
                defaults[field.name] = field.default_factory()
        return {name: value for name, value in values.items() if value != defaults[name]}

    def resolve_api_key(self, environ: Mapping[str, str] = os.environ) -> str | None:
        """Return the API key, or None if none is set.

        Raises `ConfigError` if the variable in `api_key_env` is not set.
        """
        if self.api_key_env is None:
            return self.api_key
        api_key = environ.get(self.api_key_env)
        if not api_key:
            raise ConfigError(
                f"agent.api_key_env names the variable {self.api_key_env}, which is not set.",
                hint=f"Set it: export {self.api_key_env}=…",
                field="agent.api_key_env",
            )
        return api_key


class SshConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Another machine for processes, reached with the system's ssh, which cannot prompt.

    destination   user@host, or a host name from ssh's own configuration
    folder        the working directory there, relative to the home folder; created if missing
    port          the port of the ssh server; default: as ssh chooses
    identity      the file of the private key; default: as ssh chooses
    known_hosts   the file of known host keys; default: that of ssh
    """

    destination: str
    folder: str = "."
    port: Annotated[int, Meta(ge=1, le=65_535)] | None = None
    identity: str | None = None
    known_hosts: str | None = None


class DockerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Containers for processes: one that is already running, or a new one for each process.

    container   the running container; processes start in its working directory
    image       the image of the new containers; processes.folder is mounted there as /work
    options     further options of `docker run`, for an image
    """

    container: str | None = None
    image: str | None = None
    options: tuple[str, ...] = DEFAULT_DOCKER_OPTIONS

    def __post_init__(self) -> None:
        if (self.container is None) == (self.image is None):
            raise ConfigError(
                "Docker needs a container or an image.",
                hint="Give exactly one of them.",
                field="image",
            )


class ProcessesConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Background programs of the agent: on this machine as the gateway's user, by ssh or in Docker.

    enabled           whether the agent has the tools terminal and process
    role              the lowest role whose turns may use these tools
    folder            the working directory of processes; any directory outside of it is refused;
                      default: a folder in the data folder
    variables         the environment variables that processes inherit; leave keys and tokens out
    at_most           how many processes may run at the same time
    keep_minutes      how long a process and its output stay available after its end
    longest_seconds   how long the agent may wait for a process in one call
    ssh               another machine on which processes run
    docker            a container in which processes run
    """

    enabled: bool = False
    role: Role = "owner"
    folder: str | None = None
    variables: tuple[str, ...] = DEFAULT_VARIABLES
    at_most: int = 64
    keep_minutes: float = 30
    longest_seconds: float = 180
    ssh: SshConfig | None = None
    docker: DockerConfig | None = None

    def __post_init__(self) -> None:
        self.rules()
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

    def rules(self) -> ProcessSettings:
        """Return the settings of background processes."""
        return ProcessSettings(**{n: getattr(self, n) for n in ProcessSettings.__struct_fields__})


class LogConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The log. It never contains keys, tokens or texts of messages; ids are pseudonyms.

    level    the lowest level that is logged
    format   text: lines for people; json: one JSON object per line
    file     the log file; default: standard error
    """

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] = "text"
    file: str | None = None


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """The whole configuration."""

    store: StoreConfig = StoreConfig()
    gateway: GatewayConfig = GatewayConfig()
    agent: AgentConfig = AgentConfig()
    platforms: Mapping[str, Any] = {}
    http: HttpConfig = HttpConfig()
    processes: ProcessesConfig = ProcessesConfig()
    log: LogConfig = LogConfig()

    @property
    def settings(self) -> Settings:
        """The settings to open the store with."""
        enabled = [name for name, section in self.platforms.items() if section.enabled]
        return self.store.settings(tuple(sorted({*enabled} - {"local"})))

    @property
    def rules(self) -> GatewaySettings:
        """The settings of the gateway and its platforms."""
        platforms = {
            name: section.settings()
            for name, section in self.platforms.items()
            if isinstance(section, PlatformConfig)
        }
        return self.gateway.settings(platforms)

    @property
    def local(self) -> LocalConfig:
        """The section of the terminal, or its defaults."""
        section = self.platforms.get("local")
        return section if isinstance(section, LocalConfig) else LocalConfig()
