"""Settings of the HTTP server: frozen values, read from the configuration."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from tertulia.core.secret import Secret
from tertulia.errors import ConfigError
from tertulia.records.people import ROLES, Role

_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
_HOST = re.compile(r"[A-Za-z0-9_.-]{1,253}|[0-9A-Fa-f:.]{2,45}")
_SITE = re.compile(r"https?://[A-Za-z0-9_.-]{1,253}(:\d{1,5})?")
_SHORTEST_SECRET = 16
# The name of the caller on a server without tokens.
NO_TOKEN = "owner"  # noqa: S105


class Token(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename={"secret": "token", "secret_env": "token_env", "is_shared": "shared"},
):
    """A token that gives access. Set either `token` or `token_env`.

    name         the name of its holder, in logs and as the author of messages
    role         the rights of its holder
    secret       the token itself; better kept out of the file
    secret_env   the environment variable that contains it
    is_shared    whether several people use it, such as those of one web application
    person_header  the header in which such an application names the person of a request
    """

    name: str
    role: Role = "member"
    secret: Secret | None = None
    secret_env: str | None = None
    is_shared: bool = False
    person_header: str | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ConfigError(
                f"Invalid token name {self.name!r}.",
                hint="Use up to 64 of a-z, 0-9, '_', '.' and '-', starting with a letter or digit.",
                field="name",
            )
        if self.role not in ROLES:
            raise ConfigError(
                f"Invalid role {self.role!r} of the token {self.name}.",
                hint=f"Allowed: {', '.join(ROLES)}.",
                field="role",
            )
        if (self.secret is None) == (self.secret_env is None):
            problem = "has no value" if self.secret is None else "has two values"
            raise ConfigError(
                f"The token {self.name!r} {problem}.",
                hint="Give either token or token_env.",
                field="token",
            )
        if self.secret is not None:
            _check_secret(self.secret, self.name)

    def __repr__(self) -> str:
        return f"Token(name={self.name!r}, role={self.role!r})"

    def resolve_secret(self, environ: Mapping[str, str] = os.environ) -> str:
        """Return the secret, from its variable if it names one; raise `ConfigError` if invalid."""
        if self.secret_env is None:
            assert self.secret is not None
            return self.secret
        secret = environ.get(self.secret_env)
        if not secret:
            raise ConfigError(
                f"http.tokens: the variable {self.secret_env} of the token {self.name!r} is empty.",
                hint=f"Set it: export {self.secret_env}=…",
                field="http.tokens",
            )
        _check_secret(secret, self.name)
        return secret


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The address the server listens on, its tokens and its limits.

    host                  the address to listen on; other than loopback only with tokens
    port                  the port to listen on; 0: any free one
    tokens                the tokens that give access; without any, everybody on this machine is
                          the owner
    hosts                 names under which browsers reach the server, such as that of a proxy;
                          those of this machine and the address it listens on need not be named
    frames                sites that may show the console's chat for guests in a frame, and whose
                          pages may use /web/… themselves, such as
                          https://shop.example.com
    connections           how many connections may be open; never more than half of the descriptors
                          that the process may open
    connections_per_address  how many of them may come from one address
    proxies               addresses that connect for many people, to which no limit of an address
                          applies; who is behind them is read from X-Forwarded-For
    streams_per_token     how many event streams one token may have open
    streams_per_address   how many of those of a guest's token may come from one address
    max_body              the largest request body in bytes
    guest_body            the same for tokens with the role guest
    open_body             the same for requests without a token (/webhook, /platforms)
    requests_per_minute   how many requests one token may make in a minute, and as many again its
                          signed-in browsers
    requests_per_address  how many of those of a guest's token may come from one address
    refusal_seconds       how long a request beyond a limit waits for its refusal, so that a client
                          that does not slow down by itself is slowed down
    head_seconds          how long the head of a request may take to arrive
    read_seconds          how long the request body may take to arrive
    wait_seconds          how long a request waits for another turn of its conversation
    stream_seconds        how long an event stream may stay open; clients reconnect
    ping_seconds          how often an idle stream sends a comment to keep the connection open
    drain_seconds         how long running requests may continue after the server is asked to stop
    """

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8460
    tokens: tuple[Token, ...] = ()
    hosts: tuple[str, ...] = ()
    frames: tuple[str, ...] = ()
    connections: Annotated[int, Meta(ge=1)] = 2000
    connections_per_address: Annotated[int, Meta(ge=1)] = 200
    proxies: tuple[str, ...] = ("127.0.0.1", "::1")
    streams_per_token: Annotated[int, Meta(ge=1)] = 200
    streams_per_address: Annotated[int, Meta(ge=1)] = 50
    max_body: Annotated[int, Meta(ge=1024)] = 8_388_608
    guest_body: Annotated[int, Meta(ge=1024)] = 65_536
    open_body: Annotated[int, Meta(ge=1024)] = 1_048_576
    requests_per_minute: Annotated[int, Meta(ge=1)] = 240
    requests_per_address: Annotated[int, Meta(ge=1)] = 60
    refusal_seconds: Annotated[float, Meta(ge=0)] = 1.0
    head_seconds: float = 10.0
    read_seconds: float = 30.0
    wait_seconds: float = 30.0
    stream_seconds: float = 3600.0
    ping_seconds: float = 15.0
    drain_seconds: float = 30.0

    def __post_init__(self) -> None:
        for name in (
            "connections", "connections_per_address", "streams_per_token", "streams_per_address",
            "max_body", "guest_body", "open_body", "requests_per_minute", "requests_per_address",
            "head_seconds", "read_seconds", "wait_seconds", "stream_seconds", "ping_seconds",
            "drain_seconds",
        ):  # fmt: skip
            if not getattr(self, name) > 0:
                raise ConfigError(
                    f"{name} is {getattr(self, name)!r}.", hint="Give a number above 0.", field=name
                )
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port is {self.port!r}.", hint="Allowed: 0 to 65535.", field="port")
        for name in self.hosts:
            if not _HOST.fullmatch(name):
                raise ConfigError(
                    f"Invalid host name {name!r}.",
                    hint="Give the name alone, such as bot.example.com: no scheme and no port.",
                    field="hosts",
                )
        for site in self.frames:
            if not _SITE.fullmatch(site):
                raise ConfigError(
                    f"Invalid site {site!r}.",
                    hint="Give scheme and host, such as https://shop.example.com: no path.",
                    field="frames",
                )
        _refuse_repeated("name", [token.name for token in self.tokens])
        _refuse_repeated("secret", [token.secret for token in self.tokens if token.secret])
        if not self.tokens and not is_loopback(self.host):
            raise ConfigError(
                f"Without tokens the server would be open to everybody who reaches {self.host}.",
                hint="Add a token, or listen on 127.0.0.1.",
                field="host",
            )

    def body_limit(self, role: Role | None) -> int:
        """Return the largest body that a caller with this role may send; None: without a token."""
        smaller = {None: self.open_body, "guest": self.guest_body}
        return min(self.max_body, smaller.get(role, self.max_body))

    @property
    def token_roles(self) -> dict[str, Role]:
        """The roles of the tokens, by name; without tokens, everybody on this machine is owner."""
        return {token.name: token.role for token in self.tokens} or {NO_TOKEN: "owner"}

    def is_own_host(self, host: str, address: str = "") -> bool:
        """Return whether the value of a Host header is a name of this server.

        These are the names of loopback, the address that the server listens on or that the request
        came to (`address`), and those in `hosts`.
        """
        name = (host.rpartition(":")[0] if re.search(r":\d+$", host) else host).strip("[]").lower()
        if not name:
            return False
        if is_loopback(name) or name.endswith(".localhost"):
            return True
        return name in (self.host.lower(), address.lower(), *map(str.lower, self.hosts))

    def check_secrets(self) -> None:
        """Raise `ConfigError` if the variable of a token is empty, or two have the same secret."""
        _refuse_repeated("secret", [token.resolve_secret() for token in self.tokens])


def is_loopback(host: str) -> bool:
    """Return whether an address can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def normalize_address(address: str) -> str:
    """Return an address in its shortest form, so that two ways to write it count as the same."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    mapped = getattr(parsed, "ipv4_mapped", None)
    return str(mapped or parsed)


def _refuse_repeated(field: str, values: list[str]) -> None:
    if len(set(values)) < len(values):
        raise ConfigError(
            f"Two tokens have the same {field}.",
            hint=f"Give each token its own {field}.",
            field="tokens",
        )


def _check_secret(secret: str, name: str) -> None:
    """Raise `ConfigError` for a secret that is easy to guess; the message does not contain it."""
    if len(secret) < _SHORTEST_SECRET or not secret.isascii() or not secret.isprintable():
        raise ConfigError(
            f"The secret of the token {name} is too short, or not printable ASCII.",
            hint=f"Use at least {_SHORTEST_SECRET} letters and digits:"
            " python -c 'import secrets; print(secrets.token_urlsafe(32))'",
            field="token",
        )
