"""Settings of MCP servers: how each is reached, who may use its tools, and with which approval."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from tertulia.core.secret import Secret
from tertulia.errors import ConfigError
from tertulia.records.people import ROLES, Role

_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,18}[a-z0-9])?")


class McpServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """An MCP server, reached by a command or by an address.

    command        the program of the server, or a list of the program and its arguments
    args           arguments of the program, after those of `command`
    env            variables of its environment, with their values
    url            the address of the server, instead of a command
    headers        headers of its requests; a value may be a secret
    secrets        variables of its environment, each with the name of ours that has the value; it
                   gets PATH, HOME, LANG, TZ, those of `env` and no other
    tools          names of the tools that are offered; * and ? stand for any characters
    role           the lowest role whose agent may use them
    approval       which calls a person has to approve: all (ask), all but those that only read as
                   the server says (reads), or none (allow)
    call_seconds   how long a call may take
    """

    command: Annotated[tuple[str, ...], Meta(extra={"may_be_text": True})] = ()
    args: tuple[str, ...] = ()
    env: Mapping[str, Secret] = {}
    url: str | None = None
    headers: Mapping[str, Secret] = {}
    secrets: Mapping[str, str] = {}
    tools: tuple[str, ...] = ("*",)
    role: Role = "owner"
    approval: Literal["ask", "reads", "allow"] = "ask"
    call_seconds: Annotated[float, Meta(gt=0)] = 60.0

    def __post_init__(self) -> None:
        if bool(self.command) == bool(self.url):
            raise ConfigError(
                "An MCP server needs a command or a url, and not both.",
                hint='For example: command = ["mcp-server-time"]',
                field="command",
            )
        unused = [name for name in ("args", "env", "secrets") if self.url and getattr(self, name)]
        if unused:
            raise ConfigError(
                f"An MCP server that is reached by a url has no {unused[0]}.",
                hint="They belong to a command; a url takes headers.",
                field=unused[0],
            )
        if self.url is not None and not self.url.startswith(("http://", "https://")):
            raise ConfigError(
                f"The address {self.url!r} is not valid.",
                hint="It begins with http:// or https://.",
                field="url",
            )

    @property
    def arguments(self) -> tuple[str, ...]:
        """The program of the server and its arguments; empty if it is reached by an address."""
        return (*self.command, *self.args)

    def allows(self, role: Role) -> bool:
        """Return whether the agent may use the tools for a person with that role."""
        return ROLES.index(role) <= ROLES.index(self.role)

    def offers(self, tool: str) -> bool:
        """Return whether a tool of the server is offered."""
        return any(fnmatchcase(tool, pattern) for pattern in self.tools)

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of its process; raise `ConfigError` if one of ours is not set."""
        names = [name for name in ("PATH", "HOME", "LANG", "TZ") if name in environ]
        variables = {name: environ[name] for name in names} | dict(self.env)
        for name, ours in self.secrets.items():
            if not environ.get(ours):
                raise ConfigError(
                    f"The variable {ours}, which an MCP server needs, is not set.",
                    hint=f"Set it: export {ours}=…",
                    field="secrets",
                )
            variables[name] = environ[ours]
        return variables


class McpSettings(msgspec.Struct, frozen=True, kw_only=True):
    """MCP servers, by name.

    servers   the servers
    """

    servers: Mapping[str, McpServerSettings] = {}

    def __post_init__(self) -> None:
        for name in self.servers:
            if not _NAME.fullmatch(name):
                raise ConfigError(
                    f"{name!r} cannot be the name of an MCP server.",
                    hint="Use up to 20 lower-case letters, digits and '-'.",
                    field="servers",
                )
