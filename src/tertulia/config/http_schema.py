"""The section `[http]`. By default the server listens on loopback only."""

from __future__ import annotations

import os
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from tertulia.errors import ConfigError

Secret = Annotated[str, Meta(extra={"is_secret": True})]
"""A text that is never shown: not by `tertulia config show`, not in logs, not in a repr."""


class TokenConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A token that gives access. Set either `token` or `token_env`.

    name        the name of its holder, in logs and as the author of messages
    role        the rights of its holder
    token       the token itself; better kept out of the file
    token_env   the environment variable that contains it
    """

    name: str
    role: Literal["owner", "member", "guest"] = "member"
    token: Secret | None = None
    token_env: str | None = None

    def __post_init__(self) -> None:
        if (self.token is None) == (self.token_env is None):
            problem = "has no value" if self.token is None else "has two values"
            raise ConfigError(
                f"The token {self.name!r} {problem}.",
                hint="Give either token or token_env.",
                field="token",
            )

    def resolve_secret(self) -> str:
        """Return the token from the file or the environment; raise `ConfigError` if it is empty."""
        secret = self.token or os.environ.get(self.token_env or "")
        if not secret:
            raise ConfigError(
                f"http.tokens: the variable {self.token_env} of the token {self.name!r} is empty.",
                hint=f"Set it: export {self.token_env}=…",
                field="http.tokens",
            )
        return secret


class HttpConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The HTTP server.

    enabled               whether `tertulia run` serves HTTP
    host                  the address to listen on
    port                  the port to listen on; 0: any free one
    tokens                the tokens that give access
    max_body              the largest request body in bytes
    requests_per_minute   how many requests one token may make in a minute
    """

    enabled: bool = False
    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8460
    tokens: tuple[TokenConfig, ...] = ()
    max_body: Annotated[int, Meta(ge=1024)] = 8_388_608
    requests_per_minute: Annotated[int, Meta(ge=1)] = 240
