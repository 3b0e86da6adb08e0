"""Settings of the HTTP server; frozen values, built from the configuration."""

from __future__ import annotations

import ipaddress
import re

import msgspec

from tertulia.config.http_schema import HttpConfig
from tertulia.errors import ConfigError
from tertulia.records.people import ROLES, Role

_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
_SHORTEST_SECRET = 16
_DEFAULTS = HttpConfig()  # the same defaults as in the configuration file


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """Access for the holder of `secret`, who writes as `name` with the rights of `role`."""

    name: str
    secret: str
    role: Role = "member"

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ConfigError(
                f"Invalid token name {self.name!r}.",
                hint="Use up to 64 of a-z, 0-9, '_', '.' and '-', starting with a letter or digit.",
                field="tokens",
            )
        if self.role not in ROLES:
            raise ConfigError(
                f"Invalid role {self.role!r} of the token {self.name}.",
                hint=f"Allowed: {', '.join(ROLES)}.",
                field="tokens",
            )
        _check_secret(self.secret, self.name)

    def __repr__(self) -> str:
        return f"Token(name={self.name!r}, role={self.role!r})"


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The address the server listens on, its tokens and its limits.

    host             the address to listen on; other than loopback only with tokens
    port             the port to listen on; 0 chooses a free one
    tokens           the tokens that give access; without any, everybody on this machine is the
                     owner
    max_body         the largest request body in bytes
    rate             requests per minute for each token
    read_seconds     how long the request body may take to arrive
    wait_seconds     how long a request waits for another turn of its conversation
    stream_seconds   how long an event stream may stay open; clients reconnect
    ping_seconds     how often an idle stream sends a comment to keep the connection open
    drain_seconds    how long running requests may continue after the server is asked to stop
    """

    host: str = _DEFAULTS.host
    port: int = _DEFAULTS.port
    tokens: tuple[Token, ...] = ()
    max_body: int = _DEFAULTS.max_body
    rate: int = _DEFAULTS.requests_per_minute
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
        for field, values in (
            ("name", [token.name for token in self.tokens]),
            ("secret", [token.secret for token in self.tokens]),
        ):
            if len(set(values)) < len(values):
                raise ConfigError(
                    f"Two tokens have the same {field}.",
                    hint=f"Give each token its own {field}.",
                    field="tokens",
                )
        if not self.tokens and not is_loopback(self.host):
            raise ConfigError(
                f"Without tokens the server would be open to everybody who reaches {self.host}.",
                hint="Add a token, or listen on 127.0.0.1.",
                field="host",
            )


def is_loopback(host: str) -> bool:
    """Return whether an address can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_secret(secret: str, name: str) -> None:
    """Raise `ConfigError` for a secret that is easy to guess; the message does not contain it."""
    if len(secret) < _SHORTEST_SECRET or not secret.isascii() or not secret.isprintable():
        raise ConfigError(
            f"The secret of the token {name} is too short, or not printable ASCII.",
            hint=f"Use at least {_SHORTEST_SECRET} letters and digits:"
            " python -c 'import secrets; print(secrets.token_urlsafe(32))'",
            field="tokens",
        )
