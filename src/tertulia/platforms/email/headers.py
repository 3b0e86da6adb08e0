"""The header of a mail: who wrote it, to whom, in which thread, and whether a program did.

The header comes from strangers: nothing of it is believed that the own server did not write.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from email.errors import MessageError
from email.header import decode_header
from email.message import Message
from email.parser import BytesHeaderParser
from email.utils import getaddresses
from typing import Final

import msgspec

# Marks what this program sends, so that no other instance of it answers.
AGENT_HEADER: Final = "X-Tertulia-Agent"
_MAX_RECIPIENTS: Final = 30
_MAX_HOPS: Final = 50
_MAX_ID: Final = 250
_MAX_REFERENCES: Final = 100
# The longest From and Subject that are read: reading longer ones would take long.
_MAX_FIELD: Final = 2_000
_ADDRESS = re.compile(r"[^\s<>()\[\],;:\"\\@]{1,64}@[^\s<>()\[\],;:\"\\@]{1,250}")
_DOMAIN = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"', re.S)
_COMMENT_PIECE = re.compile(r"\\.|[()\\]|[^()\\]+", re.S)
_ID = re.compile(r"<([^<>\s]+)>")
_ROBOT = re.compile(
    r"(mailer-daemon|postmaster|no-?reply|do-?not-?reply|bounces?|auto-?reply|autoresponder"
    r"|notifications?)([+=-].*)?"
)
_PROGRAM_HEADERS: Final = (
    AGENT_HEADER, "X-Autoreply", "X-Autorespond", "X-Autoresponder", "List-Id",
    "List-Unsubscribe", "X-Loop",
)  # fmt: skip
_PREFIX = re.compile(r"\s*(?:re|aw|sv|antw|rv|odp|vs|ynt)(?:\[\d+\])?\s*:\s*", re.I)
_FORWARDED = re.compile(r"\s*(?:fwd?|wg|tr|rv|i|doorst)\s*:", re.I)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\s]+")


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a header that matter. Addresses are in small letters.

    message_id   the id of the mail, with its angle brackets
    sender       the address in From
    others       the other addresses in To and Cc, without the account's own ones
    is_direct    the account is in To, not only in Cc
    is_named     the account is in To or Cc
    references   the ids of the mails before it in its thread, the first one first
    program      why a program wrote it; None if a person did
    """

    message_id: str
    sender: str
    sender_name: str | None = None
    others: tuple[str, ...] = ()
    is_direct: bool = True
    is_named: bool = True
    subject: str = ""
    references: tuple[str, ...] = ()
    reply_to: str | None = None
    program: str | None = None

    @property
    def is_forwarded(self) -> bool:
        """Return whether the subject says that a mail of somebody else is passed on."""
        return _FORWARDED.match(self.subject) is not None


def parse_header(data: bytes) -> Message:
    """Return the header of a mail by its fields, whatever it contains."""
    return BytesHeaderParser().parsebytes(data)


def read_header(message: Message, own: frozenset[str]) -> Header:
    """Return the header of a mail; raise `ValueError` if nobody can be named as its author.

    `own` are the addresses of the account.
    """
    sender, name = _author(message)
    to, cc = (_recipients(message, field) for field in ("To", "Cc"))
    references = _references(message)
    return Header(
        message_id=_message_id(message),
        sender=sender,
        sender_name=name,
        others=tuple(sorted({*to, *cc} - own - {sender})),
        is_direct=bool(own & {*to}),
        is_named=bool(own & {*to, *cc}),
        subject=_clean(decode_words(field_text(message, "Subject")[:_MAX_FIELD])),
        references=references,
        reply_to=references[-1] if references else None,
        program="our own address" if sender in own else _program(message, sender),
    )


def field_text(message: Message, name: str) -> str:
    """Return the first field of a name as it stands there, "" without one."""
    return next(_fields(message, name), "")


def _fields(message: Message, name: str, above: str | None = None) -> Iterator[str]:
    for key, value in message.raw_items():
        if above is not None and key.lower() == above.lower():
            return
        if key.lower() == name.lower():
            yield str(value).encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def all_fields(message: Message, name: str, *, above: str | None = None) -> list[str]:
    """Return all fields of a name, the topmost first; only those above every field `above`."""
    return list(_fields(message, name, above))


def normal_address(address: str) -> str | None:
    """Return an address in the form that names one person once, or None if it is none."""
    text = address.strip().lower()
    if not _ADDRESS.fullmatch(text):
        return None
    local, _, domain = text.partition("@")
    try:
        domain = domain.rstrip(".").encode("idna").decode()
    except UnicodeError:
        return None
    return f"{local}@{domain}" if _DOMAIN.fullmatch(domain) else None


def subject_stem(subject: str) -> str:
    """Return a subject without "Re:"."""
    while match := _PREFIX.match(subject):
        subject = subject[match.end() :]
    return subject.strip()


def decode_words(text: str) -> str:
    """Return a text with its encoded words (=?utf-8?q?…?=) decoded."""
    if "=?" not in text:
        return text
    try:
        pieces = decode_header(text)
    except (MessageError, ValueError, LookupError):
        return text
    words = []
    for data, charset in pieces:
        if isinstance(data, str):
            words.append(data)
            continue
        try:
            words.append(data.decode(charset or "ascii", "replace"))
        except LookupError:
            words.append(data.decode("utf-8", "replace"))
    return "".join(words)


def without_comments(text: str) -> str:
    """Return a text without its comments (in parentheses, which may contain others).

    Raises `ValueError` if one does not end: then nobody knows what is in it.
    """
    pieces, depth = [], 0
    for piece in _COMMENT_PIECE.findall(text):
        if piece == "(":
            depth += 1
        elif piece == ")" and depth:
            depth -= 1
            pieces.append(" ")
        elif not depth:
            pieces.append(piece)
    if depth:
        raise ValueError("a comment without an end, so no clear author")
    return "".join(pieces)


def _author(message: Message) -> tuple[str, str | None]:
    """Return the address and the name in From.

    Read by hand: an address that two programs read differently is how a stranger takes somebody's
    place. There must be one field with one address, and no other "@" outside of quotes.
    """
    fields = all_fields(message, "From")
    if len(fields) != 1 or len(fields[0]) > _MAX_FIELD:
        raise ValueError("not one From field of a usual length")
    field = _CONTROL.sub(" ", fields[0])
    bare = without_comments(_QUOTED.sub(" ", field))
    angle = re.findall(r"<([^<>]*)>", bare)
    address = normal_address(angle[0] if len(angle) == 1 else bare)
    if address is None or bare.count("@") != 1 or len(angle) > 1:
        raise ValueError("no clear author")
    if not angle:
        return address, None
    name = _clean(decode_words(field[: field.rfind("<")].strip().strip('"')))
    return address, name or None


def _recipients(message: Message, name: str) -> list[str]:
    fields = [_CONTROL.sub(" ", field) for field in all_fields(message, name)]
    addresses = (normal_address(address) for _, address in getaddresses(fields))
    return [address for address in addresses if address is not None]


def _message_id(message: Message) -> str:
    match = _ID.search(field_text(message, "Message-ID"))
    if match is not None and len(match[1]) <= _MAX_ID:
        return f"<{match[1]}>"
    # Without an id it needs one that is the same each time: that of its header.
    head = "\n".join(f"{key}:{field_text(message, key)}" for key in ("Date", "From", "Subject"))
    first_hop = "".join(all_fields(message, "Received")[-1:])
    digest = hashlib.sha256(f"{head}\n{first_hop}".encode()).hexdigest()
    return f"<{digest[:32]}@without-id.invalid>"


def _references(message: Message) -> tuple[str, ...]:
    ids = _ID.findall(" ".join(all_fields(message, "References")))
    ids += _ID.findall(field_text(message, "In-Reply-To"))[:1]
    short = [f"<{text}>" for text in ids if len(text) <= _MAX_ID]
    first_of_each = list(dict.fromkeys(short))
    return (*first_of_each[:1], *first_of_each[1:][-_MAX_REFERENCES:])


def _program(message: Message, sender: str) -> str | None:
    """Return why a mail was written by a program, or None (RFC 3834)."""
    reason = next((name for name in _PROGRAM_HEADERS if name in message), None)
    submitted = field_text(message, "Auto-Submitted").partition(";")[0].strip().lower()
    suppressed = field_text(message, "X-Auto-Response-Suppress").lower()
    precedence = field_text(message, "Precedence").strip().lower()
    if submitted not in ("", "no"):
        reason = "Auto-Submitted"
    elif precedence in ("bulk", "junk", "list", "auto_reply"):
        reason = "Precedence"
    elif "all" in suppressed or "autoreply" in suppressed:
        reason = "X-Auto-Response-Suppress"
    elif field_text(message, "Return-Path").strip() == "<>":
        reason = "an empty Return-Path"
    elif _ROBOT.fullmatch(sender.partition("@")[0]):
        reason = "the address of a program"
    elif field_text(message, "Content-Type").lower().strip().startswith("multipart/report"):
        reason = "a report"
    elif len(all_fields(message, "Received")) > _MAX_HOPS:
        reason = "too many hops"
    elif len(_recipients(message, "To") + _recipients(message, "Cc")) > _MAX_RECIPIENTS:
        reason = "too many recipients"
    return reason


def _clean(text: str) -> str:
    return _CONTROL.sub(" ", text).strip()
