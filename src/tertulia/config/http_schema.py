"""How the program is reached over HTTP. Loopback only, and nobody without a token, by default."""

from __future__ import annotations

import os
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from tertulia.errors import ConfigError

Secret = Annotated[str, Meta(extra={"is_secret": True})]
"""A text that is never shown: not by `tertulia config show`, not in logs, not in a repr."""


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """Who may come in, and as what. The token stands here, or in the variable `token_env`.

    name        what the token is called in logs
    role        what may be done with it
    token       the token itself; better leave it out of the file
    token_env   the environment variable that holds it
    """

    name: str
    role: Literal["owner", "member", "guest"] = "member"
    token: Secret | None = None
    token_env: str | None = None

    def __post_init__(self) -> None:
        if (self.token is None) == (self.token_env is None):
            raise ConfigError(
                f"The token {self.name!r} is given nowhere, or twice.",
                hint="Give either token or token_env.",
                field="token",
            )

    def secret(self) -> str:
        """The token itself, from the file or from the environment."""
        found = self.token or os.environ.get(self.token_env or "")
        if not found:
            raise ConfigError(
                f"http.tokens: the variable {self.token_env} of the token {self.name!r} is empty.",
                hint=f"Set it: export {self.token_env}=…",
                field="http.tokens",
            )
        return found


class HttpConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The HTTP side.

    enabled               whether `tertulia run` opens it
    host                  the address it listens on
    port                  the port it listens on; 0: any that is free
    tokens                who may come in
    max_body              the longest request, in bytes
    requests_per_minute   how many requests one token may make in a minute
    """

    enabled: bool = False
    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8460
    tokens: tuple[Token, ...] = ()
    max_body: Annotated[int, Meta(ge=1024)] = 8_388_608
    requests_per_minute: Annotated[int, Meta(ge=1)] = 240
