"""Replies of IMAP servers, and names and strings for them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tertulia.errors import PlatformUnavailable
from tertulia.platforms.email.imap import (
    MAX_LITERAL,
    ImapConnection,
    encode_folder,
    quoted,
    read_tokens,
)
from tertulia.platforms.email.wire import MailServerAddress, Wire


@pytest.mark.parametrize(
    ("line", "literals", "tokens"),
    [
        (b"5 EXISTS", [], ["5", "EXISTS"]),
        (b'1 FETCH (UID 7 X "a \\"b\\"")', [], ["1", "FETCH", ["UID", "7", "X", b'a "b"']]),
        (b"1 FETCH (BODY[HEADER]<0> \x00)", [b"From: x"], ["1", "FETCH", ["BODY[HEADER]<0>",
                                                                        b"From: x"]]),
        (b'(NIL "NIL" ())', [], [[None, b"NIL", []]]),
        (b"OK [UIDNEXT 5] Ready", [], ["OK", "[UIDNEXT 5]", "Ready"]),
        (b"))(a", [], [["a"]]),
        (b'"open', [], [b"open"]),
        (b"\x00", [], [b""]),
    ],
)  # fmt: skip
def test_reply_becomes_tokens(line: bytes, literals: list[bytes], tokens: list[Any]) -> None:
    assert read_tokens(line, literals) == tokens


@given(st.binary(max_size=200))
def test_any_reply_is_read(line: bytes) -> None:
    read_tokens(line)


@given(st.text(max_size=50))
@example('a"b\\c"')
@example("a\r\nT2 LOGOUT\0")
def test_quoted_string_is_one_token(text: str) -> None:
    clean = text.encode("utf-8", "replace").decode()
    line = quoted(clean).encode()
    assert not {*b"\r\n\0"} & {*line}
    (token,) = read_tokens(line)
    assert token.decode() == "".join(letter for letter in clean if letter not in "\r\n\x00")


class _ScriptedWire:
    """Lines and bytes of a server, without a connection."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._lines = iter(lines)

    async def write(self, data: bytes) -> None:
        return

    async def read_line(self, seconds: float) -> bytes:
        return next(self._lines)

    async def read_bytes(self, count: int) -> bytes:
        raise AssertionError(f"{count} bytes were asked for")


@pytest.mark.parametrize(
    "lines",
    [
        [b"* 1 FETCH (BODY[] {%d}\r\n" % (MAX_LITERAL + 1)],
        itertools.repeat(b"* 1 FETCH ()\r\n", 10**6),
    ],
    ids=["literal", "replies"],
)
def test_server_that_sends_without_end_is_left(lines: Iterable[bytes]) -> None:
    wire: Any = _ScriptedWire(lines)
    with pytest.raises(PlatformUnavailable):
        asyncio.run(ImapConnection(wire).command("NOOP"))


def test_folder_whose_next_number_is_not_told_is_counted() -> None:
    """Else a new mailbox would be answered from its first mail on."""
    lines = (b"* OK [UIDVALIDITY 5]\r\n", b"T1 OK\r\n", b"* SEARCH 3 7\r\n", b"T2 OK\r\n")
    wire: Any = _ScriptedWire(lines)
    assert asyncio.run(ImapConnection(wire).select("INBOX")) == (5, 8)


def test_news_about_another_mail_are_no_answer() -> None:
    """A server reports changes of other mails together with the one that was asked for."""
    lines = (b"* 3 FETCH (UID 9 FLAGS ())\r\n", b"* 2 FETCH (UID 7 FLAGS (x))\r\n", b"T1 OK\r\n")
    wire: Any = _ScriptedWire(lines)
    assert asyncio.run(ImapConnection(wire).fetch(7, ["FLAGS"])) == {"UID": "7", "FLAGS": ["x"]}


@pytest.mark.parametrize("moment", ["before", "at the beginning", "while it waits"])
def test_mail_is_noticed_whenever_the_server_reports_it(moment: str) -> None:
    """It reports a mail once: with the answer to another command, or with the first of IDLE."""
    news = b"* 2 EXISTS\r\n"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            tag, command, *_ = line.decode().split()
            if command == "NOOP":
                writer.write((news if moment == "before" else b"") + f"{tag} OK\r\n".encode())
                continue
            writer.write(news * (moment == "at the beginning") + b"+ idling\r\n")
            writer.write(b"* OK Still here\r\n" + news * (moment == "while it waits"))
            assert await reader.readline() == b"DONE\r\n"
            writer.write(f"{tag} OK\r\n".encode())
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        address = MailServerAddress("imap", "127.0.0.1", port, False)
        imap = ImapConnection(await Wire.open(address))
        async with asyncio.timeout(60):
            await imap.command("NOOP")
            await imap.idle(600)
        imap.close()
        server.close()
        await asyncio.sleep(0.01)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("name", "encoded"),
    [("INBOX", "INBOX"), ("A & B", "A &- B"), ("Entwürfe", "Entw&APw-rfe"), ("日本", "&ZeVnLA-")],
)
def test_folder_is_spelled_as_imap_wants_it(name: str, encoded: str) -> None:
    assert encode_folder(name) == encoded
