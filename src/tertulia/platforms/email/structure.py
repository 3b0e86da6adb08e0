"""The parts of a mail: which of them are its text, and which are files.

The structure is that of IMAP's BODYSTRUCTURE, so that a huge mail is never loaded as a whole. A
mail that is malformed yields what can be read of it.
"""

from __future__ import annotations

import base64
import binascii
import quopri
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final
from urllib.parse import unquote_to_bytes

import msgspec

from tertulia.platforms.email.headers import decode_words

# The smallest picture inside an HTML mail that counts as a file; the others are logos and dots.
_SMALLEST_PICTURE: Final = 10_000
_MAX_DEPTH: Final = 20
_MAX_PARTS: Final = 200
_SIGNATURES: Final = frozenset({
    "application/pgp-signature", "application/pkcs7-signature", "application/x-pkcs7-signature",
})  # fmt: skip
_DIGITS = re.compile(r"[0-9]{1,18}")
_NOT_BASE64 = re.compile(rb"[^A-Za-z0-9+/]")


class MailPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a mail. `section` is its number in IMAP, `size` that of the encoded bytes."""

    section: str
    type: str
    charset: str | None = None
    encoding: str = "7bit"
    size: int = 0
    name: str | None = None
    is_attachment: bool = False
    is_flowed: bool = False
    content_id: str | None = None

    @property
    def decoded_size(self) -> int:
        """Return about how many bytes the part has once it is decoded."""
        return self.size * 3 // 4 if self.encoding == "base64" else self.size


class Structure(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a mail that matter: its texts in order, its files, and of which kind it is."""

    type: str
    texts: tuple[MailPart, ...] = ()
    files: tuple[MailPart, ...] = ()


def read_structure(tokens: object) -> Structure:
    """Return the structure in a BODYSTRUCTURE."""
    texts: list[MailPart] = []
    files: list[MailPart] = []
    node = tokens if isinstance(tokens, list) else []
    for part, is_text in _walk(node, "", 0):
        if len(texts) + len(files) < _MAX_PARTS:
            (texts if is_text else files).append(part)
    return Structure(type=_type_of(node), texts=tuple(texts), files=tuple(files))


def _walk(node: Sequence[Any], section: str, depth: int) -> Iterator[tuple[MailPart, bool]]:
    """Yield the leaves of a mail, and for each whether it is text to read."""
    if depth > _MAX_DEPTH or not node:
        return
    if not isinstance(node[0], list):
        yield from _leaf(node, section or "1")
        return
    kind = _type_of(node)
    children = [child for child in node if isinstance(child, list) and _is_part(child)]
    numbered = [
        (child, f"{section}.{number}".lstrip(".")) for number, child in enumerate(children, 1)
    ]
    branches = [list(_walk(child, name, depth + 1)) for child, name in numbered]
    if kind == "multipart/alternative":
        yield from _choose(branches)
        return
    for branch in branches:
        for part, is_text in branch:
            if not _is_decoration(part, kind, is_text):
                yield part, is_text


def _choose(branches: Sequence[list[tuple[MailPart, bool]]]) -> Iterator[tuple[MailPart, bool]]:
    """Yield the plain text of alternatives, else the richest one; and the files of all."""
    plain = [
        branch for branch in branches if any(p.type == "text/plain" and text for p, text in branch)
    ]
    rich = [branch for branch in branches if any(is_text for _, is_text in branch)]
    chosen = (plain or rich[-1:] or [[]])[0]
    yield from ((part, True) for part, is_text in chosen if is_text)
    for branch in branches:
        for part, is_text in branch:
            if not is_text and part.type != "text/calendar":
                yield part, False


def _leaf(node: Sequence[Any], section: str) -> Iterator[tuple[MailPart, bool]]:
    kind = _type_of(node)
    if kind in _SIGNATURES:
        return
    parameters, disposition = _pairs(_at(node, 2)), _disposition(node, kind)
    name = disposition[1].get("filename") or parameters.get("name")
    part = MailPart(
        section=section,
        type=kind,
        charset=parameters.get("charset"),
        encoding=_text(_at(node, 5)).lower(),
        size=_number(_at(node, 6)),
        name=name,
        is_attachment=disposition[0] == "attachment",
        is_flowed=parameters.get("format", "").lower() == "flowed",
        content_id=_text(_at(node, 3)) or None,
    )
    is_text = kind in ("text/plain", "text/html") and not part.is_attachment and name is None
    yield part, is_text


def _is_part(node: Sequence[Any]) -> bool:
    return bool(node) and (isinstance(node[0], list) or len(node) >= 7)


def _is_decoration(part: MailPart, parent: str, is_text: bool) -> bool:
    """Return whether a part is a small picture inside an HTML mail."""
    is_picture = part.type.startswith("image/") and part.content_id is not None
    is_inside = parent == "multipart/related" and not part.is_attachment
    return not is_text and is_picture and is_inside and part.decoded_size < _SMALLEST_PICTURE


def _type_of(node: Sequence[Any]) -> str:
    """Return the type of a part: `text/plain`, `multipart/mixed`."""
    if node and isinstance(node[0], list):
        subtype = next((_text(item) for item in node if not isinstance(item, list)), "mixed")
        return f"multipart/{subtype or 'mixed'}".lower()
    return f"{_text(_at(node, 0)) or 'text'}/{_text(_at(node, 1)) or 'plain'}".lower()


def _disposition(node: Sequence[Any], kind: str) -> tuple[str, dict[str, str]]:
    # The place of the disposition depends on the type: texts have a number of lines before it,
    # a mail inside a mail has its envelope, its structure and its lines.
    index = 9 if kind.startswith("text/") else 11 if kind == "message/rfc822" else 8
    value = _at(node, index)
    if not isinstance(value, list) or not value:
        return "", {}
    return _text(value[0]).lower(), _pairs(_at(value, 1))


def _pairs(value: object) -> dict[str, str]:
    """Return parameters by name, with the encodings of RFC 2231 and 2047 undone."""
    if not isinstance(value, list):
        return {}
    pairs: dict[str, str] = {}
    pieces: dict[str, dict[int, str]] = {}
    for name, raw in zip(value[::2], value[1::2], strict=False):
        key, text = _text(name).lower(), _text(raw)
        base, star, number = key.partition("*")
        if star and _DIGITS.fullmatch(digits := number.rstrip("*")):
            pieces.setdefault(base, {})[int(digits)] = text
        elif star:
            pairs[base] = _decode_2231(text)
        else:
            pairs.setdefault(key, decode_words(text))
    for base, numbered in pieces.items():
        pairs[base] = _decode_2231("".join(numbered[number] for number in sorted(numbered)))
    return pairs


def _decode_2231(text: str) -> str:
    charset, quote, rest = text.partition("'")
    data = rest.partition("'")[2] if quote else text
    return decode_bytes(unquote_to_bytes(data), charset if quote else None)


def _at(node: Sequence[Any], index: int) -> Any:
    return node[index] if index < len(node) else None


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return decode_bytes(value, None)
    return value if isinstance(value, str) else ""


def _number(value: object) -> int:
    text = _text(value)
    return int(text) if _DIGITS.fullmatch(text) else 0


# -- decoding


def decode_transfer(data: bytes, encoding: str) -> bytes:
    """Return the bytes of a part without its transfer encoding; a cut end is left out."""
    if encoding == "base64":
        clean = _NOT_BASE64.sub(b"", data)
        clean = clean[: len(clean) - (len(clean) % 4 == 1)]
        try:
            return base64.b64decode(clean + b"=" * (-len(clean) % 4))
        except binascii.Error:
            return b""
    if encoding == "quoted-printable":
        return quopri.decodestring(data)
    return data


def decode_bytes(data: bytes, charset: str | None) -> str:
    """Return bytes as text, whatever the mail says about its charset."""
    for name in (charset, "utf-8"):
        try:
            # By the method of bytes: it knows no codecs that are not about text, such as "zip".
            return data.decode((name or "utf-8").strip().strip("\"'"))
        except (LookupError, ValueError):
            continue
    return data.decode("cp1252", "replace")


def decode_text(part: MailPart, data: bytes, *, is_cut: bool = False) -> str:
    """Return the text of a part; `is_cut`: it is only the beginning."""
    content = decode_transfer(data, part.encoding)
    if is_cut:
        content = content[: content.rfind(b"\n") + 1] or content
    text = decode_bytes(content, part.charset).replace("\r\n", "\n").replace("\r", "\n")
    return unwrap_flowed(text) if part.is_flowed else text


def unwrap_flowed(text: str) -> str:
    """Return a text of format=flowed (RFC 3676) with its paragraphs in one line each."""
    lines: list[str] = []
    is_open = False
    for line in text.split("\n"):
        content = line[1:] if line.startswith(" ") else line
        is_quoted = line.startswith(">")
        if is_open and not is_quoted and lines:
            lines[-1] += content
        else:
            lines.append(content)
        is_open = line.endswith(" ") and line != "-- " and not is_quoted
    return "\n".join(lines)
