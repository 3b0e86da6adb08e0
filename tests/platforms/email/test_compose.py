"""Mails to send, and the ids by which they are recognised."""

from __future__ import annotations

from datetime import UTC, datetime
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.text.markdown import parse
from tertulia.core.text.spans import FormattedText
from tertulia.platforms.email.compose import MailIds, MailToSend, compose, reply_subject, title_of

IDS = MailIds("secret", "example.org")


def composed(text: str | FormattedText = "hola", **fields: Any) -> EmailMessage:
    values: dict[str, Any] = {
        "message_id": "<1@example.org>",
        "sender": "agent@example.org",
        "sender_name": "Agent",
        "recipients": ["ana@example.com"],
        "subject": "Re: hola",
        "text": FormattedText(text) if isinstance(text, str) else text,
        "date": datetime(2026, 11, 17, tzinfo=UTC),
        **fields,
    }
    data = compose(MailToSend(**values))
    assert all(len(line) < 998 for line in data.split(b"\r\n"))
    message = message_from_bytes(data, policy=default)
    assert isinstance(message, EmailMessage)
    return message


def test_answer_is_plain_text_and_html() -> None:
    message = composed(text=parse("**bold** [x](https://example.org)"))
    plain, html = message.get_body(("plain",)), message.get_body(("html",))
    assert plain is not None
    assert html is not None
    assert plain.get_content().strip() == "bold x (https://example.org)"
    assert "<strong>bold</strong>" in html.get_content()


def test_other_programs_are_told_not_to_answer() -> None:
    assert composed()["Auto-Submitted"] == "auto-generated"
    answer = composed(references=("<root@x>", "<last@x>"))
    assert answer["Auto-Submitted"] == "auto-replied"
    assert (answer["In-Reply-To"], answer["References"]) == ("<last@x>", "<root@x> <last@x>")


def test_long_ids_are_neither_broken_nor_encoded() -> None:
    long = f"<{'x' * 240}@example.com>"
    answer = composed(message_id=long, references=("<root@x>", long))
    assert answer["Message-ID"] == answer["In-Reply-To"] == long
    assert answer["References"].split() == ["<root@x>", long]


def test_file_is_an_attachment() -> None:
    message = composed(file=("año.txt", "text/plain", b"\x00\xff"))
    (attachment,) = message.iter_attachments()
    assert (attachment.get_filename(), attachment.get_payload(decode=True)) == (
        "año.txt",
        b"\x00\xff",
    )


@given(st.text(max_size=300), st.text(max_size=300))
def test_no_text_of_a_model_gets_into_the_header(subject: str, text: str) -> None:
    message = composed(
        text, subject=subject, sender_name=subject, file=(subject or "x", "a/b", b"")
    )
    assert set(message.keys()) == {
        "From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted", "MIME-Version",
        "X-Auto-Response-Suppress", "X-Tertulia-Agent", "Content-Type",
    }  # fmt: skip


def test_text_that_is_no_text_is_sent_without_it() -> None:
    """A model can write half of a character, and marks that steer a terminal."""
    message = composed("a \ud83d b \x1b[31m c\x00", subject="\ud83d \x1b[31m")
    body = message.get_body(("plain",))
    assert body is not None
    assert body.get_content().strip() == "a ? b [31m c\ufffd"


def test_header_in_a_subject_stays_in_the_subject() -> None:
    message = composed(subject="hola\r\nBcc: eve@evil.example")
    assert message["Bcc"] is None
    assert message["Subject"] == "hola Bcc: eve@evil.example"


@pytest.mark.parametrize(
    "reference",
    [
        "<a@b>\r\nBcc: eve@evil.example",
        "<a@b>\r\n\r\nbody",
        "no id",
        "<a b@c>",
        "<a@b>\0",
        "<a\x7f>",
    ],
)
def test_reference_that_is_no_id_gets_into_no_header(reference: str) -> None:
    message = composed(references=("<first@x>", reference))
    assert message["Bcc"] is None
    assert message["References"] == message["In-Reply-To"] == "<first@x>"
    assert message["To"]


@pytest.mark.parametrize(
    "media_type",
    ["", "/", "a", "a/", "/b", "a/b/c", "a/b\r\nBcc: x@y", "é/ü", "a b/c", "text/plain"],
)
def test_file_of_any_type_is_an_attachment(media_type: str) -> None:
    message = composed(file=("photo.png", media_type, b"\x00\xff"))
    assert message["Bcc"] is None
    (attachment,) = message.iter_attachments()
    assert attachment.get_payload(decode=True) == b"\x00\xff"


@given(st.text(min_size=1, max_size=100))
def test_id_of_a_mail_names_its_delivery(delivery: str) -> None:
    key = delivery.encode("utf-8", "replace").decode()
    message_id = IDS.id_of(key)
    assert message_id == MailIds("secret", "example.org").id_of(key)
    assert IDS.delivery_of(message_id) in (key, None)
    assert MailIds("another", "example.org").delivery_of(message_id) is None


def test_id_hides_the_key_and_cannot_be_made_up() -> None:
    message_id = IDS.id_of("answer:email:ana@example.com")
    assert IDS.delivery_of(message_id) == "answer:email:ana@example.com"
    assert "ana" not in message_id
    forged = message_id.replace(message_id[5], "a" if message_id[5] != "a" else "b", 1)
    assert IDS.delivery_of(forged) is None
    for text in ("", "<>", "<x@y>", "<1.2@example.com>", "<\ud83d@x>"):
        assert IDS.delivery_of(text) is None
    assert len(IDS.id_of("x" * 5000)) < 300


def test_subjects() -> None:
    assert reply_subject("hola") == reply_subject("Re: RE: hola") == "Re: hola"
    assert title_of("# A title\n\nand text") == "A title"
    assert len(title_of("x" * 500)) <= 60
    assert title_of("  \n ") == ""
