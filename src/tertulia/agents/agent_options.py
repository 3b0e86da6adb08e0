"""The options of each kind of agent. They are also its section [agent] in the configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tertulia.agents.transport import Limits, Retry
from tertulia.core.history.formats import Format
from tertulia.core.secret import Secret, refuse_two_values, resolve_secret
from tertulia.core.settings import FilePath
from tertulia.errors import ConfigError

OPENAI_URL = "https://api.openai.com/v1"
ANTHROPIC_URL = "https://api.anthropic.com"

# Fields of the body of a call that the agent sets itself, so they cannot be options.
_RESERVED_FIELDS = frozenset(("model", "messages", "system", "tools", "stream"))

_Address = Annotated[str, Meta(extra={"is_address": True})]


class AgentOptions(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """Options of every agent.

    tool_seconds     how long a tool may take
    fallback         names of agents in [agents] that answer while the model of this one cannot
    tools            names of the tools it is offered; * and ? stand for any characters; default:
                     all
    prompt_files     files whose text the system prompt of a session begins with, as they are when
                     the session begins; together at most 32 KB
    role             the lowest role that may choose this agent with /agent
    """

    tool_seconds: Annotated[float, Meta(gt=0)] = 300.0
    fallback: tuple[str, ...] = ()
    tools: tuple[str, ...] | None = None
    prompt_files: tuple[FilePath, ...] = ()
    role: Literal["owner", "member", "guest"] = "member"

    @property
    def kind(self) -> str:
        """Return the kind of the agent, such as "openai"."""
        return str(self.__struct_config__.tag)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"  # keys, headers and arguments are secret


class ParrotOptions(AgentOptions, frozen=True, kw_only=True, tag="parrot"):
    """No model: the parrot shows its own input."""


class StepOptions(AgentOptions, frozen=True, kw_only=True):
    """Options of the agents that get a history and answer in steps.

    history_tokens   the largest history that is sent, in tokens
    max_steps        how many model calls one answer may take
    limits           how long an answer may take, in seconds, and how large it may be, in bytes
    """

    history_tokens: Annotated[int, Meta(ge=1)] | None = None
    max_steps: Annotated[int, Meta(ge=1)] = 30
    limits: Limits = Limits()


class RemoteOptions(StepOptions, frozen=True, kw_only=True):
    """Options of the agents behind a server.

    headers          sent with every call
    retry            how often, and how soon, a failed call is repeated
    """

    headers: Mapping[str, Secret] = {}
    retry: Retry = Retry()


class ModelOptions(RemoteOptions, frozen=True, kw_only=True):
    """Options of the agents that call a model.

    model            the name of the model
    models           names of other models of the same server, which /model can choose
    base_url         the address of the API
    api_key          the API key; better kept out of the file
    api_key_env      the environment variable that contains the API key
    api_key_envs     the environment variables of several keys: a session uses one of them, and the
                     next when that is refused or has reached a limit
    provider         the provider whose prices are used
    instructions     the first part of the system prompt
    max_tokens       the longest answer, in tokens
    options          sent unchanged with every call, such as { temperature = 0.2 }
    vision           whether the model sees images; default: yes, until its server refuses them
    documents        whether the server accepts PDF files; default: only the provider's own
    """

    model: str
    models: tuple[str, ...] = ()
    base_url: _Address
    api_key: Secret | None = None
    api_key_env: str | None = None
    api_key_envs: tuple[str, ...] = ()
    provider: str | None = None
    instructions: str = ""
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    options: Mapping[str, Any] = {}
    vision: bool | None = None
    documents: bool | None = None

    def __post_init__(self) -> None:
        refuse_two_values(self, "api_key")
        if self.api_key_envs and (self.api_key is not None or self.api_key_env is not None):
            raise ConfigError(
                "Both one key and api_key_envs are set.",
                hint="Give all variables in api_key_envs.",
                field="api_key_envs",
            )
        if reserved := _RESERVED_FIELDS & self.options.keys():
            raise ConfigError(
                f"The options of {self.kind} contain {', '.join(sorted(reserved))}.",
                hint="The agent sets these fields itself; remove them from the options.",
                field="options",
            )

    @property
    def key_hint(self) -> str:
        """Return what to do if the server refuses the key."""
        variables = [self.api_key_env] if self.api_key_env else self.api_key_envs
        if variables:
            return f"Check the key in {', '.join(variables)}."
        if self.api_key is not None:
            return "Check agent.api_key."
        return "It wants a key: name the variable that contains it, agent.api_key_env."

    def resolve_api_key(self, environ: Mapping[str, str] = os.environ) -> str | None:
        """Return the API key, the first of several, or None if none is set.

        Raises `ConfigError` if a variable is not set.
        """
        return next(iter(self.resolve_api_keys(environ)), None)

    def resolve_api_keys(self, environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
        """Return all API keys, each once; raise `ConfigError` if a variable is not set."""
        if not self.api_key_envs:
            key = resolve_secret(self, "api_key", environ, section="agent")
            return () if key is None else (key,)
        for variable in self.api_key_envs:
            if not environ.get(variable):
                raise ConfigError(
                    f"agent.api_key_envs names the variable {variable}, which is not set.",
                    hint=f"Set it: export {variable}=…",
                    field="agent.api_key_envs",
                )
        return tuple(dict.fromkeys(environ[variable] for variable in self.api_key_envs))


class OpenAIOptions(ModelOptions, frozen=True, kw_only=True, tag="openai"):
    """Any server with the OpenAI Chat Completions API.

    provider          the provider whose prices are used; default: openai at its own address
    sends_reasoning   whether the reasoning of the model is sent back to it; default: only to a
                      server that itself uses the field `reasoning_content`, since others reject it
    """

    base_url: _Address = OPENAI_URL
    sends_reasoning: bool | None = None


class AnthropicOptions(ModelOptions, frozen=True, kw_only=True, tag="anthropic"):
    """Any server with the Anthropic Messages API.

    caches   whether the prompt is marked so that its unchanged beginning is read from the
             provider's cache
    """

    base_url: _Address = ANTHROPIC_URL
    provider: str | None = "anthropic"
    max_tokens: Annotated[int, Meta(ge=1)] = 8192
    caches: bool = True


class CommandAgentOptions(StepOptions, frozen=True, kw_only=True, tag="command"):
    """A program that uses standard input and output.

    command         the program and its arguments
    folder          the working directory of the program
    variables       environment variables added to those of the gateway
    format          the format of the history
    grace_seconds   how long the program may take to end before it is killed
    """

    # The arguments of a program may contain a secret.
    command: Annotated[tuple[str, ...], Meta(extra={"is_command": True})]
    folder: FilePath | None = None
    variables: Mapping[str, Secret] = {}
    format: Format = "openai"
    grace_seconds: Annotated[float, Meta(ge=0)] = 2.0

    def __post_init__(self) -> None:
        command: object = self.command
        if isinstance(command, str) or not command:
            raise ConfigError(
                f"Invalid command of an agent: {command!r}.",
                hint='Give the program and its arguments as a list: ["python", "my_agent.py"].',
                field="command",
            )


class HttpAgentOptions(RemoteOptions, frozen=True, kw_only=True, tag="http"):
    """An HTTP endpoint of your own.

    url       the address of the endpoint
    format    the format of the history
    """

    url: _Address
    format: Format = "openai"
