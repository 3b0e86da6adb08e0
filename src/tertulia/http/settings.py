"""How the gateway is reached over HTTP; frozen values, read from the configuration."""

from __future__ import annotations

import ipaddress
import re

import msgspec

from tertulia.config.http_schema import HttpConfig
from tertulia.errors import ConfigError
from tertulia.records.people import ROLES, Role

_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
_SHORTEST_SECRET = 16
_CONFIGURED = HttpConfig()  # as a file that says nothing has it


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """Who may come in. Whoever has the secret writes as `name`, and may do what the role may."""

    name: str
    secret: str
    role: Role = "member"

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ConfigError(
                f"A token is named {self.name!r}.",
                hint="Give up to 64 of a-z, 0-9, '_', '.' and '-', a letter or digit first.",
                field="tokens",
            )
        if self.role not in ROLES:
            raise ConfigError(
                f"The role of the token {self.name} is {self.role!r}.",
                hint=f"Allowed: {', '.join(ROLES)}.",
                field="tokens",
            )
        _check_secret(self.secret, self.name)

    def __repr__(self) -> str:
        return f"Token(name={self.name!r}, role={self.role!r})"


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server listens, and what it lets through.

    host             the address to listen on; other than loopback only with tokens
    port             0 takes a free one
    tokens           who may come in; without any, everybody on this machine is the owner
    max_body         the largest request in bytes
    rate             requests a minute for each token
    read_seconds     how long a request may take to come in
    wait_seconds     how long a request waits for another turn of its conversation
    stream_seconds   how long a stream of events may stay open; clients connect again
    ping_seconds     how often an idle stream gives a sign of life
    drain_seconds    how long answers may go on when the server is told to stop
    """

    host: str = _CONFIGURED.host
    port: int = _CONFIGURED.port
    tokens: tuple[Token, ...] = ()
    max_body: int = _CONFIGURED.max_body
    rate: int = _CONFIGURED.requests_per_minute
    read_seconds: float = 30.0
    wait_seconds: float = 30.0
    stream_seconds: float = 3600.0
    ping_seconds: float = 15.0
    drain_seconds: float = 30.0

    def __post_init__(self) -> None:
        for name in (
            "max_body", "rate", "read_seconds", "wait_seconds", "stream_seconds",
            "ping_seconds", "drain_seconds",
        ):  # fmt: skip
            if not getattr(self, name) > 0:
                raise ConfigError(
                    f"{name} is {getattr(self, name)!r}.", hint="Give a number above 0.", field=name
                )
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port is {self.port!r}.", hint="Allowed: 0 to 65535.", field="port")
        for what, given in (
            ("name", [token.name for token in self.tokens]),
            ("secret", [token.secret for token in self.tokens]),
        ):
            if len(set(given)) < len(given):
                raise ConfigError(
                    f"Two tokens have the same {what}.",
                    hint="Give each its own.",
                    field="tokens",
                )
        if not self.tokens and not is_loopback(self.host):
            raise ConfigError(
                f"The server would be open to everybody who reaches {self.host}.",
                hint="Add a token, or listen on 127.0.0.1.",
                field="host",
            )


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_secret(secret: str, name: str) -> None:
    """Refuse a secret that can be guessed; the error does not say it."""
    if len(secret) < _SHORTEST_SECRET or not secret.isascii() or not secret.isprintable():
        raise ConfigError(
            f"The secret of the token {name} is too short, or cannot be sent.",
            hint=f"Give at least {_SHORTEST_SECRET} letters and digits:"
            " python -c 'import secrets; print(secrets.token_urlsafe(32))'",
            field="tokens",
        )
