"""Connections to mail servers: addresses, TLS, and lines with a time limit.

No error here contains what was sent, because passwords are sent.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from abc import ABC, abstractmethod
from typing import Final, Self
from urllib.parse import urlsplit

import msgspec

from tertulia.errors import ConfigError, PlatformUnavailable

CONNECT_SECONDS: Final = 15.0
REPLY_SECONDS: Final = 30.0
# The longest line of a reply; what is longer comes as a literal, or is an attack.
_MAX_LINE: Final = 2**20
# The ports without and with TLS from the first byte.
_PORTS: Final = {"imap": 143, "imaps": 993, "smtp": 587, "smtps": 465}


class MailServerAddress(msgspec.Struct, frozen=True):
    """The address of a mail server."""

    protocol: str
    host: str
    port: int
    is_tls: bool

    @property
    def needs_starttls(self) -> bool:
        """Return whether the connection must be encrypted before anything secret is sent."""
        return not self.is_tls and not _is_loopback(self.host)

    @classmethod
    def parse(cls, url: str, protocol: str, field: str) -> Self:
        """Read an address such as imaps://imap.example.org; raise `ConfigError` if it is wrong."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port, parts = None, None, urlsplit("")
        if parts.scheme not in (protocol, f"{protocol}s") or not host or parts.username:
            raise ConfigError(
                f"{field} is not the address of a mail server.",
                hint=f'Write for example: {protocol}_url = "{protocol}s://{protocol}.example.org".'
                " The user and the password are keys of their own.",
                field=field,
            )
        return cls(protocol, host, port or _PORTS[parts.scheme], parts.scheme != protocol)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Wire:
    """A connection that is read in lines; every wait has a limit."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: MailServerAddress
    ) -> None:
        self._reader = reader
        self._writer = writer
        self.address = address

    @classmethod
    async def open(cls, address: MailServerAddress) -> Self:
        """Connect; raise `PlatformUnavailable` if that fails."""
        context = ssl.create_default_context() if address.is_tls else None
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                reader, writer = await asyncio.open_connection(
                    address.host, address.port, ssl=context, limit=_MAX_LINE
                )
        except (OSError, TimeoutError, UnicodeError) as problem:  # a name that no server can have
            raise unreachable(address, problem) from None
        return cls(reader, writer, address)

    async def start_tls(self) -> None:
        """Encrypt the connection from here on; what came before does not count.

        Who sits in between could have added answers to the one that began the encryption.
        """
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._writer.start_tls(
                    ssl.create_default_context(), server_hostname=self.address.host
                )
        except (OSError, TimeoutError) as problem:
            raise unreachable(self.address, problem) from None
        try:
            async with asyncio.timeout(0):
                early = await self._reader.read(1)  # the server has been asked nothing yet
        except TimeoutError:
            return
        except OSError as problem:
            raise unreachable(self.address, problem) from None
        if not early:
            raise unreachable(self.address, EOFError())
        raise PlatformUnavailable(
            f"Answers came with that of the {self.address.protocol.upper()} server, before the"
            " encryption began.",
            hint=f"Somebody may be in between. Use {self.address.protocol}s://, if the server has"
            " it.",
        )

    async def write(self, data: bytes) -> None:
        """Send bytes; raise `PlatformUnavailable` if the connection is lost."""
        try:
            self._writer.write(data)
            async with asyncio.timeout(REPLY_SECONDS):
                await self._writer.drain()
        except (OSError, TimeoutError, RuntimeError) as problem:
            raise unreachable(self.address, problem) from None

    async def read_line(self, seconds: float = REPLY_SECONDS) -> bytes:
        """Return the next line with its end; raise `PlatformUnavailable` without one."""
        try:
            async with asyncio.timeout(seconds):
                return await self._reader.readuntil(b"\n")
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError) as problem:
            raise unreachable(self.address, problem) from None

    async def wait_line(self, seconds: float) -> bytes | None:
        """Return the next line, or None if there is none within `seconds`."""
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                return await self._reader.readuntil(b"\n")
        except TimeoutError:
            return None
        except (OSError, EOFError, asyncio.LimitOverrunError) as problem:
            raise unreachable(self.address, problem) from None

    async def read_bytes(self, count: int) -> bytes:
        """Return so many bytes; raise `PlatformUnavailable` if they do not come."""
        try:
            async with asyncio.timeout(REPLY_SECONDS * 4):
                return await self._reader.readexactly(count)
        except (OSError, EOFError, TimeoutError) as problem:
            raise unreachable(self.address, problem) from None

    def close(self) -> None:
        """Close the connection at once."""
        self._writer.transport.abort()


def unreachable(address: MailServerAddress, problem: Exception) -> PlatformUnavailable:
    """Return the error of a connection that failed or was lost."""
    hint = f"Check {address.protocol}_url and the network."
    if isinstance(problem, ssl.SSLCertVerificationError):
        reason = "its certificate is not valid for this name"
    elif isinstance(problem, ssl.SSLError):
        reason = "there is no TLS on this port"
        hint = (
            f"Without a port, {address.protocol}s:// means {_PORTS[address.protocol + 's']};"
            f" {address.protocol}:// is for STARTTLS."
        )
    elif isinstance(problem, TimeoutError):
        reason = "it does not answer"
    elif isinstance(problem, socket.gaierror | UnicodeError):
        reason = "there is no such host"
    elif isinstance(problem, ConnectionRefusedError):
        reason = "nothing listens on this port"
    elif isinstance(problem, asyncio.LimitOverrunError):
        reason = "it sent a line without an end"
    elif isinstance(problem, EOFError | ConnectionError):
        reason = "it closed the connection"
    else:
        reason = type(problem).__name__
    return PlatformUnavailable(
        f"The {address.protocol.upper()} server cannot be reached: {reason}.", hint=hint
    )


class MailConnection(ABC):
    """A connection with a logged-in account. After any error it can only be closed."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._wire.address.host}>"

    @classmethod
    async def open(cls, address: MailServerAddress, user: str, password: str) -> Self:
        """Connect and log in; raise `AccountProblem` if the account is refused."""
        connection = cls(await Wire.open(address))
        try:
            await connection._log_in(user, password)
        except BaseException:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        """Close the connection."""
        self._wire.close()

    @abstractmethod
    async def _log_in(self, user: str, password: str) -> None:
        """Read the greeting of the server, and log in."""
