"""Mails as they are read from a folder: header, text, files and trust, without loading all of it.

A mail may be huge. Only its header, its structure and the beginning of its texts are fetched here;
a file is fetched when a turn needs it, in pieces.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

import msgspec

from tertulia.core.media import Media
from tertulia.platforms.email.headers import (
    Header,
    field_text,
    parse_header,
    read_header,
)
from tertulia.platforms.email.html_text import html_to_text
from tertulia.platforms.email.imap import ImapConnection, gone
from tertulia.platforms.email.quotes import SplitText, split_quotes
from tertulia.platforms.email.structure import (
    MailPart,
    Structure,
    decode_text,
    decode_transfer,
    read_structure,
)
from tertulia.platforms.email.trust import Trust, own_results, read_trust

# The beginning of a header that is read; more than the limit of a reply would end the connection.
HEADER_ITEM: Final = f"BODY.PEEK[HEADER]<0.{2**18}>"
_TEXT_BYTES: Final = 2**18
_PIECE_BYTES: Final = 2**18
_MAX_QUOTED: Final = 100_000
_CUT: Final = "[… the mail goes on]"


class ReceivedMail(msgspec.Struct, frozen=True, kw_only=True):
    """A mail of a folder."""

    uid: int
    header: Header
    trust: Trust
    text: str
    quoted: str
    files: tuple[Media, ...]
    received_at: datetime


class BounceReport(msgspec.Struct, frozen=True, kw_only=True):
    """A report of a server that a mail could not be delivered."""

    message_id: str
    status: str


async def fetch_mail(
    imap: ImapConnection, uid: int, validity: int, *, own: frozenset[str], server: str | None
) -> ReceivedMail | BounceReport | None:
    """Return a mail, or None if it is gone; raise `ValueError` if it cannot be understood.

    `own` are the addresses of the account, `server` the name in its Authentication-Results, if it
    is known.
    """
    items = ("UID", "INTERNALDATE", "BODYSTRUCTURE", HEADER_ITEM)
    fields = await imap.fetch(uid, items)
    if fields is None:
        return None
    message = parse_header(_bytes(fields.get("BODY[HEADER]")))
    structure = read_structure(fields.get("BODYSTRUCTURE"))
    if structure.type == "multipart/report":
        report = await _fetch_report(imap, uid, structure)
        if report is not None:
            return report
    header = read_header(message, own)
    split = SplitText("", "")
    if header.program is None:
        text = await _fetch_text(imap, uid, structure)
        is_reply = bool(header.references)
        split = split_quotes(text, is_reply=is_reply, is_forwarded=header.is_forwarded)
    return ReceivedMail(
        uid=uid,
        header=header,
        trust=read_trust(own_results(message, server), server, header.sender),
        text=split.text,
        quoted=split.quoted[:_MAX_QUOTED],
        files=tuple(_media(part, uid, validity) for part in structure.files),
        received_at=read_time(fields.get("INTERNALDATE")),
    )


def read_time(value: object) -> datetime:
    """Return the time at which a mail came in; the beginning of time if it has none."""
    text = _bytes(value).decode("ascii", "replace").strip().replace("-", " ", 2)
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError):
        return datetime.fromtimestamp(0, UTC)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


async def _fetch_text(imap: ImapConnection, uid: int, structure: Structure) -> str:
    if not structure.texts:
        return ""
    items = [f"BODY.PEEK[{part.section}]<0.{_TEXT_BYTES}>" for part in structure.texts]
    fields = await imap.fetch(uid, ["UID", *items]) or {}
    texts = []
    for part in structure.texts:
        data = _bytes(fields.get(f"BODY[{part.section}]"))
        is_cut = len(data) >= _TEXT_BYTES
        text = decode_text(part, data, is_cut=is_cut)
        if part.type == "text/html":
            text = html_to_text(text)
        texts.append(f"{text.rstrip()}\n{_CUT}" if is_cut else text.strip("\n"))
    return "\n\n".join(text for text in texts if text.strip())


async def _fetch_report(
    imap: ImapConnection, uid: int, structure: Structure
) -> BounceReport | None:
    """Return the report of a failed delivery; None if it is about something else."""
    parts = {part.type: part for part in structure.files}
    outcome, headers = parts.get("message/delivery-status"), parts.get("text/rfc822-headers")
    original = parts.get("message/rfc822")
    if outcome is None or (headers is None and original is None):
        return None
    section = headers.section if headers is not None else f"{original and original.section}.HEADER"
    items = [f"BODY.PEEK[{name}]<0.{_PIECE_BYTES}>" for name in (outcome.section, section)]
    fields = await imap.fetch(uid, ["UID", *items]) or {}
    state = decode_transfer(_bytes(fields.get(f"BODY[{outcome.section}]")), outcome.encoding)
    # The fields about the recipient are in a second block.
    status = parse_header(state.replace(b"\r\n", b"\n").replace(b"\n\n", b"\n"))
    if field_text(status, "Action").strip().lower() != "failed":
        return None
    head = parse_header(_bytes(fields.get(f"BODY[{section}]".upper())))
    code = field_text(status, "Status").strip()[:12]
    return BounceReport(message_id=field_text(head, "Message-ID").strip(), status=code)


def _media(part: MailPart, uid: int, validity: int) -> Media:
    name = part.name or ("message.eml" if part.type == "message/rfc822" else None)
    return Media(
        type=part.type,
        name=name,
        size=part.decoded_size,
        source=f"{validity}/{uid}/{part.section}/{part.encoding}",
    )


async def fetch_file(
    imap: ImapConnection, validity: int, source: str
) -> AsyncGenerator[bytes, None]:
    """Yield the bytes of a file by its `source`; raise `Refused` if it is gone."""
    try:
        expected, uid, section, encoding = source.split("/")
        is_valid = int(expected) == validity and section.replace(".", "").isdigit()
        number = int(uid)
    except ValueError:
        is_valid, number, section, encoding = False, 0, "", ""
    if not is_valid:
        raise gone()
    offset, rest = 0, b""
    while True:
        item = f"BODY.PEEK[{section}]<{offset}.{_PIECE_BYTES}>"
        fields = await imap.fetch(number, ["UID", item])
        piece = _bytes((fields or {}).get(f"BODY[{section}]"))
        if not offset and not piece:
            raise gone()
        offset += len(piece)
        is_last = len(piece) < _PIECE_BYTES
        whole, rest = _cut_encoded(rest + piece, encoding, is_last=is_last)
        if content := decode_transfer(whole, encoding):
            yield content
        if is_last:
            return


def _cut_encoded(data: bytes, encoding: str, *, is_last: bool) -> tuple[bytes, bytes]:
    """Return what can be decoded alone, and the rest, which waits for the next piece."""
    if is_last or encoding not in ("base64", "quoted-printable"):
        return data, b""
    if encoding == "quoted-printable":
        end = data.rfind(b"\n") + 1
        return data[:end], data[end:]
    clean = data.replace(b"\r", b"").replace(b"\n", b"")
    end = len(clean) // 4 * 4
    return clean[:end], clean[end:]


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode("latin-1", "replace")
    return value if isinstance(value, bytes) else b""
