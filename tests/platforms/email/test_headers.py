"""Headers of mails: who wrote, in which thread, and whether a program did."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.platforms.email.headers import (
    Header,
    decode_words,
    normal_address,
    parse_header,
    read_header,
    subject_stem,
)

OWN = frozenset({"agent@example.org", "help@example.org"})


def read(*lines: str, sender: str = "Ana <ana@example.com>") -> Header:
    head = (f"From: {sender}", "To: agent@example.org", "Message-ID: <1@x>", *lines, "", "")
    return read_header(parse_header("\r\n".join(head).encode("utf-8", "surrogateescape")), OWN)


@pytest.mark.parametrize(
    ("sender", "address", "name"),
    [
        ("ana@example.com", "ana@example.com", None),
        ("Ana Díaz <Ana@Example.COM>", "ana@example.com", "Ana Díaz"),
        ('"Díaz, Ana" <ana@example.com>', "ana@example.com", "Díaz, Ana"),
        ("=?utf-8?q?Ana_D=C3=ADaz?= <ana@example.com>", "ana@example.com", "Ana Díaz"),
        ("ana@example.com (Ana @ home)", "ana@example.com", None),
        ('"owner@example.org" <eve@evil.example>', "eve@evil.example", "owner@example.org"),
        ("ana@bücher.example", "ana@xn--bcher-kva.example", None),
    ],
)
def test_author_is_the_address_in_from(sender: str, address: str, name: str | None) -> None:
    header = read(sender=sender)
    assert (header.sender, header.sender_name) == (address, name)


@pytest.mark.parametrize(
    "sender",
    [
        "",
        "nobody",
        "ana@example.com, eve@evil.example",
        "owner@example.org <eve@evil.example>",
        "<owner@example.org> <eve@evil.example>",
        "owner@example.org)eve@evil.example",
        "owner@example.org\\@evil.example",
        "undisclosed:;",
        "owner@example.org (<eve@evil.example>",
        "ana@example.com " + "x" * 2000,
        "ana@example.com\r\nFrom: eve@evil.example",
        "=?utf-8?q?ana=40example.com?=",
    ],
)
def test_author_that_could_be_read_in_two_ways_is_refused(sender: str) -> None:
    with pytest.raises(ValueError, match=r"author|From"):
        read(sender=sender)


@pytest.mark.parametrize(
    "line",
    [
        "Auto-Submitted: auto-replied",
        "Auto-Submitted: auto-generated (rejected)",
        "Precedence: bulk",
        "Precedence: auto_reply",
        "List-Id: <talk.example.com>",
        "List-Unsubscribe: <mailto:x@example.com>",
        "X-Auto-Response-Suppress: All",
        "X-Autoreply: yes",
        "X-Loop: agent@example.org",
        "X-Tertulia-Agent: 1",
        "Return-Path: <>",
        "Content-Type: multipart/report; report-type=delivery-status",
        "Cc: " + ", ".join(f"p{number}@example.com" for number in range(40)),
        "\r\n".join("Received: from a by b" for _ in range(60)),
    ],
)
def test_mail_of_a_program_is_recognised(line: str) -> None:
    assert read(line).program is not None
    assert read("Auto-Submitted: no", "Precedence: first-class").program is None


@pytest.mark.parametrize(
    "sender",
    [
        "MAILER-DAEMON@example.com", "postmaster@example.com", "no-reply@example.com",
        "noreply+123@example.com", "bounces-77@example.com", "agent@example.org",
        "Help <HELP@example.org>",
    ],
)  # fmt: skip
def test_address_of_a_program_and_the_own_one_are_recognised(sender: str) -> None:
    assert read(sender=sender).program is not None


def test_recipients_decide_whether_it_is_a_group() -> None:
    assert read().others == ()
    group = read("Cc: Ben <ben@example.com>, ana@example.com, HELP@example.org")
    assert (group.others, group.is_direct, group.is_named) == (("ben@example.com",), True, True)


def test_mail_in_cc_and_a_blind_copy_are_told_apart() -> None:
    head = "From: ana@example.com\r\nTo: ben@example.com\r\n{}Message-ID: <1@x>\r\n\r\n"
    copy = read_header(parse_header(head.format("Cc: agent@example.org\r\n").encode()), OWN)
    assert (copy.is_direct, copy.is_named, copy.others) == (False, True, ("ben@example.com",))
    blind = read_header(parse_header(head.format("").encode()), OWN)
    assert (blind.is_direct, blind.is_named) == (False, False)


def test_thread_is_named_by_its_first_mail() -> None:
    header = read("References: <root@x>", " <second@x>", "In-Reply-To: <third@x>")
    assert header.references == ("<root@x>", "<second@x>", "<third@x>")
    assert header.reply_to == "<third@x>"
    long = read("References: " + "\r\n ".join(f"<{number}@x>" for number in range(500)))
    assert (long.references[0], long.references[-1]) == ("<0@x>", "<499@x>")
    assert len(long.references) <= 101


def test_mail_without_an_id_has_the_same_each_time() -> None:
    lines = ("From: ana@example.com", "Date: today", "Subject: hola", "", "")
    message = parse_header("\r\n".join(lines).encode())
    ids = {read_header(message, OWN).message_id for _ in range(3)}
    assert len(ids) == 1
    assert ids != {read().message_id}


@pytest.mark.parametrize(
    ("subject", "stem"),
    [
        ("Re: hola", "hola"),
        ("AW: Re: RE[2]: hola", "hola"),
        ("Regarding this", "Regarding this"),
        ("", ""),
    ],
)
def test_subject_without_re(subject: str, stem: str) -> None:
    assert subject_stem(subject) == stem


@pytest.mark.parametrize("subject", ["Fwd: hola", "FW: hola", "WG: hola"])
def test_forwarded_mail_is_recognised(subject: str) -> None:
    assert read(f"Subject: {subject}").is_forwarded
    assert not read("Subject: forward").is_forwarded


@pytest.mark.parametrize(
    ("address", "normal"),
    [
        (" Ana@Example.com. ", "ana@example.com"),
        ("ana", None),
        ("a b@example.com", None),
        ("ana@", None),
        ("ana@" + "x" * 300, None),
        ("ana@ex..ample", None),
    ],
)
def test_address_has_one_form(address: str, normal: str | None) -> None:
    assert normal_address(address) == normal


def test_words_in_unknown_charsets_are_readable() -> None:
    assert decode_words("=?nonsense?q?hol=61?=") == "hola"
    assert decode_words("=?utf-8?b?!!!?=") is not None


@given(st.binary(max_size=400))
def test_any_header_is_read_or_refused(data: bytes) -> None:
    message = parse_header(b"From: ana@example.com\r\n" + data + b"\r\n\r\n")
    try:
        header = read_header(message, OWN)
    except ValueError:
        return
    assert header.message_id.startswith("<")
    assert "\n" not in header.subject


@given(st.text(max_size=200))
def test_any_from_has_one_author_or_none(sender: str) -> None:
    try:
        header = read(sender=sender.replace("\n", " ").replace("\r", " "))
    except ValueError:
        return
    assert normal_address(header.sender) == header.sender
    assert header.sender.partition("@")[0] in sender.lower()


def test_id_that_is_too_long_is_no_reference() -> None:
    head = f"From: a@example.com\r\nReferences: <{'x' * 300}@y> <short@y>\r\n\r\n"
    header = read_header(parse_header(head.encode()), frozenset())
    assert header.references == ("<short@y>",)


def test_id_of_a_mail_that_is_too_long_is_replaced() -> None:
    head = f"From: a@example.com\r\nMessage-ID: <{'x' * 300}@y>\r\n\r\n"
    header = read_header(parse_header(head.encode()), frozenset())
    assert header.message_id.endswith("@without-id.invalid>")
