"""Addresses of mail servers: which are read, and which need encryption; and their lines."""

from __future__ import annotations

import asyncio

import pytest

from tertulia.errors import ConfigError, PlatformUnavailable
from tertulia.platforms.email.wire import MailServerAddress, Wire


@pytest.mark.parametrize(
    ("url", "host", "port", "is_tls", "needs_starttls"),
    [
        ("imaps://imap.example.org", "imap.example.org", 993, True, False),
        ("imap://imap.example.org", "imap.example.org", 143, False, True),
        ("imap://imap.example.org:1143", "imap.example.org", 1143, False, True),
        ("imap://127.0.0.1", "127.0.0.1", 143, False, False),
        ("imap://localhost", "localhost", 143, False, False),
        ("imap://[::1]:1143", "::1", 1143, False, False),
        ("imap://127.0.0.1.example.org", "127.0.0.1.example.org", 143, False, True),
    ],
)
def test_address_is_read(
    url: str, host: str, port: int, is_tls: bool, needs_starttls: bool
) -> None:
    address = MailServerAddress.parse(url, "imap", "imap_url")
    assert (address.host, address.port, address.is_tls) == (host, port, is_tls)
    assert address.needs_starttls is needs_starttls


@pytest.mark.parametrize(
    "url",
    [
        "", "imap.example.org", "imap.example.org:993", "smtp://imap.example.org", "imaps://",
        "imap://ana:secret@imap.example.org", "imap://imap.example.org:port", "imap://[::1",
        "https://imap.example.org",
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ConfigError, match="imap_url is not the address") as caught:
        MailServerAddress.parse(url, "imap", "platforms.email.imap_url")
    assert "imaps://imap.example.org" in str(caught.value.hint)
    assert "secret" not in str(caught.value)


def test_line_without_an_end_is_not_read_for_ever() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"x" * 4 * 2**20)
        await reader.read()
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        wire = await Wire.open(MailServerAddress("imap", "127.0.0.1", port, False))
        with pytest.raises(PlatformUnavailable, match="line without an end"):
            await wire.read_line()
        wire.close()
        server.close()
        await asyncio.sleep(0.01)

    asyncio.run(run())
