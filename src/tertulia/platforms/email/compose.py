"""A mail to send, as bytes; and the ids of mails, which tell us our own ones again."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Sequence
from datetime import datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, formataddr
from typing import Final

import msgspec

from tertulia.core.text.excerpt import shorten
from tertulia.core.text.spans import FormattedText, to_html, to_plain
from tertulia.core.text.storable import storable
from tertulia.platforms.email.headers import AGENT_HEADER, subject_stem

_MAX_SUBJECT: Final = 200
_TITLE_LENGTH: Final = 60
_MAC_BYTES: Final = 12
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_BLANKS = re.compile(r"\s+")
_REFERENCE = re.compile(r"<[\x21-\x3b\x3d\x3f-\x7e]+>")
_MEDIA_TYPE = re.compile(r"([a-z0-9.+-]+)/([a-z0-9.+-]+)", re.I)
# Python ends a line at the last two as well.
_HEADER_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


class MailIds:
    """Makes the ids of our mails: from the key of a delivery, and back again.

    The key is hidden in the id, with a seal. So a report about a mail names its delivery, and
    nobody else can make such a report up; and the same delivery always has the same id.
    """

    def __init__(self, secret: str, domain: str) -> None:
        seed = hashlib.sha256(b"tertulia mail ids\0" + secret.encode()).digest()
        self._seal_key, self._hide_key = seed[:16], seed[16:]
        self._domain = domain if domain.isascii() else "mail.invalid"

    def id_of(self, delivery: str) -> str:
        """Return the id of the mail of a delivery, with its angle brackets."""
        data = delivery.encode("utf-8", "replace")
        seal = self._seal(data)
        name = base64.b32encode(seal + self._hide(data, seal)).decode().rstrip("=").lower()
        # Every line of a header ends within 998 characters, and long ids break some programs.
        if len(name) > 240:
            name = base64.b32encode(hashlib.sha256(seal).digest()).decode().rstrip("=").lower()
        return f"<{name}@{self._domain}>"

    def delivery_of(self, message_id: str) -> str | None:
        """Return the delivery of one of our mails, or None if the id is not ours."""
        name = message_id.strip().strip("<>").rpartition("@")[0].upper()
        try:
            data = base64.b32decode(name + "=" * (-len(name) % 8))
        except ValueError:
            return None
        seal, hidden = data[:_MAC_BYTES], data[_MAC_BYTES:]
        delivery = self._hide(hidden, seal)
        is_ours = bool(hidden) and hmac.compare_digest(self._seal(delivery), seal)
        return delivery.decode("utf-8", "replace") if is_ours else None

    def _seal(self, data: bytes) -> bytes:
        return hmac.digest(self._seal_key, data, "sha256")[:_MAC_BYTES]

    def _hide(self, data: bytes, seal: bytes) -> bytes:
        stream = b""
        while len(stream) < len(data):
            block = len(stream).to_bytes(4, "big")
            stream += hmac.digest(self._hide_key, seal + block, "sha256")
        return bytes(a ^ b for a, b in zip(data, stream, strict=False))


class MailToSend(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a mail. `references` are the mails before it; the last is replied to."""

    message_id: str
    sender: str
    sender_name: str | None
    recipients: Sequence[str]
    subject: str
    text: FormattedText
    date: datetime
    references: Sequence[str] = ()
    file: tuple[str, str, bytes] | None = None


def compose(mail: MailToSend) -> bytes:
    """Return a mail as it is sent: the text twice, as plain text and as HTML, and a file."""
    message = EmailMessage(policy=SMTP)
    message["From"] = formataddr((_one_line(mail.sender_name or ""), mail.sender))
    message["To"] = ", ".join(mail.recipients)
    message["Subject"] = _one_line(mail.subject)[:_MAX_SUBJECT]
    message["Date"] = format_datetime(mail.date)
    # Other programs must not answer this by themselves.
    message["Auto-Submitted"] = "auto-replied" if mail.references else "auto-generated"
    message["X-Auto-Response-Suppress"] = "OOF, AutoReply"
    message[AGENT_HEADER] = "1"
    message.set_content(_body(to_plain(mail.text)), cte="quoted-printable")
    if mail.text.spans:
        html = f'<html><body><div dir="auto">{_body(to_html(mail.text))}</div></body></html>'
        message.add_alternative(html, subtype="html", cte="quoted-printable")
    if mail.file is not None:
        name, media_type, content = mail.file
        match = _MEDIA_TYPE.fullmatch(media_type)
        main, sub = match.groups() if match is not None else ("application", "octet-stream")
        message.add_attachment(
            content, maintype=main, subtype=sub,
            filename=_one_line(name), cte="base64",
        )  # fmt: skip
    return _id_fields(mail) + message.as_bytes()


def _id_fields(mail: MailToSend) -> bytes:
    """Return the fields with ids. The library would break or encode long ones, and end threads."""
    lines = [f"Message-ID: {mail.message_id}"]
    references = [text for text in mail.references if _REFERENCE.fullmatch(text)]
    if references:
        lines += [f"In-Reply-To: {references[-1]}", "References: " + "\r\n ".join(references)]
    return "".join(f"{line}\r\n" for line in lines).encode("ascii", "replace")


def reply_subject(subject: str) -> str:
    """Return the subject of an answer."""
    return f"Re: {subject_stem(subject)}".strip()


def title_of(text: str) -> str:
    """Return the subject of a mail that answers nothing: its first words."""
    line = next((line for line in text.splitlines() if line.strip()), "")
    words = _BLANKS.sub(" ", _one_line(line)).strip().lstrip("#* ")
    return shorten(words, _TITLE_LENGTH)


def _body(text: str) -> str:
    return _CONTROL.sub("", storable(text))


def _one_line(text: str) -> str:
    return _HEADER_CONTROL.sub(" ", storable(text)).strip()
