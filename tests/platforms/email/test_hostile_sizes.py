"""Mails that are made to be slow: what a stranger sends is read in a time that grows with its size.

A gateway reads a mail in its event loop, also one whose sender is not verified: what grows with the
square of the size would stop every chat for minutes. Processor time is measured, with room for a
busy machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from tertulia.platforms.base import MALFORMED
from tertulia.platforms.email.headers import parse_header, read_header
from tertulia.platforms.email.html_text import html_to_text
from tertulia.platforms.email.imap import read_tokens
from tertulia.platforms.email.quotes import split_quotes
from tertulia.platforms.email.structure import read_structure
from tertulia.platforms.email.trust import read_trust

pytestmark = pytest.mark.check

SMALL = 2**11
TIMES = 4
PIECES = (
    "(", "(\\", '"', '\\"', "<", "<a", "<a>", "=?", "=?utf-8?q?a?= ", ",", ";", "a@b.example, ",
    "\r\n x", "[", "re: ", "(a", "\\", ":", "@",
)  # fmt: skip
FIELDS = ("To", "Cc", "Subject", "References", "Message-ID", "Content-Type", "Received")
HTML = (
    "<div ", "<div>", "<", "</", "<!--", "<![CDATA[", "<!", "<?", "<a b='", '<a b="', "&", "&#",
    "<a href=x>", "<blockquote>", "<td>x", "<pre>\n", "<script>", "<style><", "<p hidden>", "<li>",
    "<b></i>", "<a =", "<div style='display :", "<!-- x --", "< ", "<a/", "<a b c='d' ",
)  # fmt: skip
QUOTES = ("> x\n", "On x wrote:\n", "On ", "-- \n", "_", "From: x\n", " ", "\n", "On a\n> b\n")


def is_slow(read: Callable[[int], object]) -> bool:
    """Return whether four times the size takes much more than four times as long."""
    seconds = []
    for size in (SMALL, SMALL * TIMES):
        began = time.process_time()
        with suppress(*MALFORMED):
            read(size)
        seconds.append(time.process_time() - began)
    return seconds[1] > seconds[0] * TIMES * 2 + 0.2


def read_fields(head: str) -> object:
    return read_header(parse_header(head.encode()), frozenset({"agent@example.org"}))


@pytest.mark.parametrize("piece", PIECES)
def test_header(piece: str) -> None:
    def read_all(size: int) -> None:
        for field in FIELDS:
            read_fields(f"From: ana@example.com\r\n{field}: {piece * size}\r\n\r\n")

    assert not is_slow(read_all)


@pytest.mark.parametrize(("before", "after"), [*((piece, "") for piece in PIECES), ("(", ")")])
def test_author_and_results_of_servers(before: str, after: str) -> None:
    def field(size: int) -> str:
        return f"{before * size}{after * size} ana@example.com"

    assert not is_slow(lambda size: read_fields(f"From: {field(size)}\r\n\r\n"))
    assert not is_slow(lambda size: read_trust([field(size)], "mx.example.org", "a@example.com"))


@pytest.mark.parametrize("piece", HTML)
@pytest.mark.parametrize("after", ["", "-->", ">"])
def test_html(piece: str, after: str) -> None:
    assert not is_slow(lambda size: html_to_text(piece * size + after))


@pytest.mark.parametrize("piece", QUOTES)
def test_quotes(piece: str) -> None:
    assert not is_slow(lambda size: split_quotes(piece * size))


@pytest.mark.parametrize("piece", ["(", ")", '"', '"\\', "[", "a[", "x ", "NIL ", "\0"])
def test_replies_of_the_server(piece: str) -> None:
    assert not is_slow(lambda size: read_structure(read_tokens((piece * size).encode())))
