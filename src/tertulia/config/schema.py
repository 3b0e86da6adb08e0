"""The configuration: one TOML file, environment variables over it, flags over those.

Nothing of it is needed: every section has defaults that work. What is wrong in it is named with the
file, the line and the nearest right name, and nothing is started. `config_file.py` reads and
names what is wrong; here stands only what there is to set.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tertulia.agents.transport import (
    Limits,
    Retry,
)
from tertulia.config.http_schema import (
    HttpConfig,
    Secret,
    Token,
)
from tertulia.core.budget import Budget
from tertulia.core.history.formats import Format
from tertulia.core.policy import Policies
from tertulia.core.settings import Durability, Settings
from tertulia.core.target import HomeChannel
from tertulia.errors import ConfigError
from tertulia.gateway.settings import (
    Admission,
    GatewaySettings,
    Groups,
    Meanwhile,
    PlatformSettings,
)
from tertulia.processes.settings import (
    DOCKER_OPTIONS,
    VARIABLES,
    ProcessSettings,
)
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
    "Token",
]


class StoreConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Where the conversations are kept, and how.

    where                     a path, sqlite:///path or postgresql://…; a path is seen from the
                              folder of the file; without one: talk.db in the data folder
    durability                "safe" survives power loss, "fast" only the end of the process
    zone                      of daily resets and usage by day; without one: the machine's
    policies                  when sessions end by themselves
    budgets                   limits that refuse a turn before its model is called
    homes                     the default chat of each platform
    group_sessions_per_user   in a group each person has a conversation of their own
    thread_sessions_shared    a thread is one conversation for all who are in it
    agent                     whose conversations these are; the second part of every key
    redact_pii                ids and phone numbers leave the store as hashes
    lease_seconds             how long a turn may be silent before another may take over
    remember                  what a policy ends is noted, for its memory
    protection_hours          how long past its end a running process keeps a session
    busy_seconds              how long to wait for another program that holds the file
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
        """What the store is opened with; `platforms` are the connected ones."""
        given = {name: getattr(self, name) for name in self.__struct_fields__ if name != "where"}
        return Settings(**given, platforms=platforms)


class GatewayConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How messages are answered.

    meanwhile         what a message does that comes during a turn: wait, end the turn, or be taken
                      into it
    gather_seconds    what a person writes in a row within so long is answered together
    turns             how many turns may be under way at once
    history_tokens    how much of the past the model is shown
    history_messages  the same in messages
    compact_turns     how many turns stay word by word when a conversation is summed up
    tries             how often a message is tried before it is given up
    sends             how often a delivery is tried before it is given up
    watch_seconds     how often sessions are looked for that their policy ends
    drain_seconds     how long turns may go on when the program is told to stop
    memory            the folder for what is remembered of sessions that ended by themselves, where
                      store.remember is on; without one: in the data folder
    """

    meanwhile: Meanwhile = "queue"
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
        self.rules({})

    def rules(self, platforms: Mapping[str, PlatformSettings]) -> GatewaySettings:
        given = {n: getattr(self, n) for n in self.__struct_fields__ if n != "memory"}
        return GatewaySettings(**given, platforms=platforms)


class PlatformConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One platform: who is answered there. Each adapter adds settings of its own.

    enabled     whether `tertulia run` serves it
    admission   who may write in private: everyone, those the owner let in (paired), or nobody else
    groups      when a group is answered: if addressed (mention), always, or never
    allow       people who may write whatever else is set, by their ids
    owners      people who may do everything, by their ids
    """

    enabled: bool = True
    admission: Admission = "paired"
    groups: Groups = "mention"
    allow: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()

    def rules(self) -> PlatformSettings:
        return PlatformSettings(
            admission=self.admission, groups=self.groups, allow=self.allow, owners=self.owners
        )


class LocalConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The terminal of this machine. Whoever sits there is the owner.

    enabled   whether `tertulia run` talks in its terminal, if it has one
    history   the file that keeps what was typed; without one: in the state folder; "": none
    """

    enabled: bool = True
    history: str | None = None


class WebhookConfig(PlatformConfig, frozen=True, kw_only=True):
    """Another program, which posts signed messages and is posted signed answers.

    secret          what both sides sign with; better leave it out of the file
    secret_env      the environment variable that holds it
    url             where answers are posted; without one, nothing is sent
    is_idempotent   whether that program drops a delivery it has had before
    """

    secret: Secret | None = None
    secret_env: str | None = None
    url: str | None = None
    is_idempotent: bool = False

    def key(self) -> str:
        """The secret, from the file or from the environment."""
        found = self.secret or os.environ.get(self.secret_env or "")
        if not found:
            raise ConfigError(
                "platforms.webhook: there is no secret to sign with.",
                hint='Name the variable that holds it: secret_env = "WEBHOOK_SECRET"',
                field="platforms.webhook",
            )
        return found


PLATFORM_SECTIONS: dict[str, type[msgspec.Struct]] = {
    "local": LocalConfig,
    "webhook": WebhookConfig,
}
"""What stands in [platforms.NAME]; a platform that is not here has a `PlatformConfig`."""

_MODEL = ("model", "base_url", "api_key", "api_key_env", "instructions", "max_tokens", "options",
          "headers", "history_tokens", "max_steps", "tool_seconds", "limits", "retry")  # fmt: skip
_FITTING = {
    "parrot": ("tool_seconds",),
    "openai": (*_MODEL, "provider"),
    "anthropic": (*_MODEL, "provider"),
    "command": ("command", "folder", "variables", "format", "history_tokens", "max_steps",
                "tool_seconds", "limits"),
    "http": ("url", "headers", "format", "history_tokens", "max_steps", "tool_seconds", "limits",
             "retry"),
}  # fmt: skip
_NEEDED = {"openai": "model", "anthropic": "model", "command": "command", "http": "url"}


class AgentConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Who answers. Which keys there are depends on the kind.

    kind             parrot: no model, shows what it was given; openai: any endpoint that speaks
                     OpenAI's chat completions; anthropic; command: a program on stdin and stdout;
                     http: an endpoint of yours
    model            (openai, anthropic) the model's name
    base_url         (openai, anthropic) where the model is; without one: the provider's own address
    api_key          (openai, anthropic) the key; better leave it out of the file
    api_key_env      (openai, anthropic) the environment variable that holds the key
    provider         (openai, anthropic) whose prices count
    instructions     (openai, anthropic) what the model is told before all else
    max_tokens       (openai, anthropic) the longest answer
    options          (openai, anthropic) sent with every call as they are
    headers          (openai, anthropic, http) sent with every call
    url              (http) the endpoint
    command          (command) the program and its arguments
    folder           (command) where the program runs
    variables        (command) its environment variables, beside those of this program
    format           (command, http) the form of the history
    history_tokens   how much of the past is sent
    max_steps        how many model calls one answer may take
    tool_seconds     how long a tool may take
    limits           how long and how large an answer may be, in seconds and bytes
    retry            how often a call is tried
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
    # The arguments of a program may hold a secret.
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
        needed = _NEEDED.get(self.kind)
        if needed is not None and not getattr(self, needed):
            raise ConfigError(
                f"An agent of the kind {self.kind!r} needs {needed}.",
                hint=f"Set {needed}.",
                field="kind",
            )
        for name in self.given():
            if name != "kind" and name not in _FITTING[self.kind]:
                raise ConfigError(
                    f"{name} means nothing for an agent of the kind {self.kind!r}.",
                    hint=f"It takes: {', '.join(sorted(_FITTING[self.kind]))}.",
                    field=name,
                )
        if self.api_key is not None and self.api_key_env is not None:
            raise ConfigError(
                "There are two keys.", hint="Give api_key or api_key_env.", field="api_key_env"
            )

    def given(self) -> dict[str, Any]:
        """What differs from the defaults."""
        fields = msgspec.structs.fields(self)
        values = {field.name: getattr(self, field.name) for field in fields}
        plain = {field.name: field.default for field in fields}
        for field in fields:
            if field.default_factory is not msgspec.NODEFAULT:
                plain[field.name] = field.default_factory()
        return {name: value for name, value in values.items() if value != plain[name]}

    def key(self, environ: Mapping[str, str] = os.environ) -> str | None:
        """The key for the provider."""
        if self.api_key_env is None:
            return self.api_key
        found = environ.get(self.api_key_env)
        if not found:
            raise ConfigError(
                f"agent.api_key_env names the variable {self.api_key_env}, which is not set.",
                hint=f"Set it: export {self.api_key_env}=…",
                field="agent.api_key_env",
            )
        return found


class SshConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Another machine for programs, reached by the system's ssh, which can ask nobody anything.

    destination   user@host, or a name of ssh's own configuration
    folder        where programs run there, seen from the home folder; it is made if it is missing
    port          where ssh is reached
    identity      the file of the key; without one: as ssh chooses
    known_hosts   the file of the keys of hosts; without one: ssh's own
    """

    destination: str
    folder: str = "."
    port: Annotated[int, Meta(ge=1, le=65_535)] | None = None
    identity: str | None = None
    known_hosts: str | None = None


class DockerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Containers for programs: one that runs already, or a new one for each program.

    container   the one that runs; programs begin in its own working directory
    image       of what each program gets a container; processes.folder is there as /work
    options     what `docker run` is given beside, for an image
    """

    container: str | None = None
    image: str | None = None
    options: tuple[str, ...] = DOCKER_OPTIONS

    def __post_init__(self) -> None:
        if (self.container is None) == (self.image is None):
            raise ConfigError(
                "Docker needs a container or an image.", hint="Give one of them.", field="image"
            )


class ProcessesConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Programs that the agent starts: on this machine, as the user of the gateway, or elsewhere.

    enabled           whether the agent has the tools terminal and process
    role              for whom it may use them: owner, member or guest, and those above
    folder            where programs run; a working directory outside of it is refused; without
                      one: a folder in the data folder
    variables         the environment variables that programs are given; leave keys and tokens out
    at_most           how many may run at once
    keep_minutes      how long one that has ended can still be asked for
    longest_seconds   how long the agent may wait for one in a single call
    ssh               another machine for them to run on
    docker            a container for them to run in
    """

    enabled: bool = False
    role: Role = "owner"
    folder: str | None = None
    variables: tuple[str, ...] = VARIABLES
    at_most: int = 64
    keep_minutes: float = 30
    longest_seconds: float = 180
    ssh: SshConfig | None = None
    docker: DockerConfig | None = None

    def __post_init__(self) -> None:
        self.rules()
        if self.ssh is not None and self.docker is not None:
            raise ConfigError(
                "Programs run in one place.", hint="Give ssh or docker, not both.", field="docker"
            )
        if self.ssh is not None and self.folder is not None:
            raise ConfigError(
                "folder is one of this machine, where nothing is run.",
                hint="Set processes.ssh.folder instead.",
                field="folder",
            )

    def rules(self) -> ProcessSettings:
        """How background programs behave."""
        return ProcessSettings(**{n: getattr(self, n) for n in ProcessSettings.__struct_fields__})


class LogConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What is logged. Keys, tokens and the texts of people never are; ids are pseudonyms.

    level    the least that is logged
    format   text: a line for people; json: one object a line for programs
    file     where to; without one: the standard error output
    """

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] = "text"
    file: str | None = None


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """All there is to set."""

    store: StoreConfig = StoreConfig()
    gateway: GatewayConfig = GatewayConfig()
    agent: AgentConfig = AgentConfig()
    platforms: Mapping[str, Any] = {}
    http: HttpConfig = HttpConfig()
    processes: ProcessesConfig = ProcessesConfig()
    log: LogConfig = LogConfig()

    @property
    def settings(self) -> Settings:
        """What the store is opened with."""
        served = [name for name, section in self.platforms.items() if section.enabled]
        return self.store.settings(tuple(sorted({*served} - {"local"})))

    @property
    def rules(self) -> GatewaySettings:
        """How the gateway behaves."""
        sections = {
            name: section.rules()
            for name, section in self.platforms.items()
            if isinstance(section, PlatformConfig)
        }
        return self.gateway.rules(sections)

    @property
    def local(self) -> LocalConfig:
        found = self.platforms.get("local")
        return found if isinstance(found, LocalConfig) else LocalConfig()
