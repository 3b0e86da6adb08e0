"""Trust in the author of a mail, from what the own server found out.

Anybody can write any address into From. The server that received the mail checks it (SPF, DKIM,
DMARC) and writes the results into a field Authentication-Results (RFC 8601). Others can write such
fields too, so only those with the name of the own server count; a server removes foreign fields
with its name. If that name is not known, only a field above every Received counts: each server puts
a Received on top of what it is sent.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from email.message import Message
from typing import Literal

import msgspec

from tertulia.platforms.email.headers import all_fields

_RESULT = re.compile(r"\A\s*(dkim|spf|dmarc|auth)\s*(?:/\s*\d+)?\s*=\s*([a-z]+)", re.I)
_PROPERTY = re.compile(r"\b(header|smtp|policy)\.([a-z-]+)\s*=\s*([^\s;]+)", re.I)
_PIECE = re.compile(r'"(?:[^"\\]|\\.)*"|\\.|[()"\\]|[^()"\\]+', re.S)
_PLAIN_VALUE = re.compile(r"[\w.@+-]*")

Method = Literal["DMARC", "DKIM", "SPF"]


class Trust(msgspec.Struct, frozen=True):
    """What is known of the author: by which check they are verified, and all results.

    method    the check that verifies the address in From; None: it may be forged
    results   the results of the own server, such as ("dkim=fail", "spf=none")
    """

    method: Method | None = None
    results: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.method is not None:
            return f"sender verified by {self.method}"
        return f"sender not verified ({', '.join(self.results) or 'no results of the server'})"


def own_results(message: Message, server: str | None) -> list[str]:
    """Return the Authentication-Results that may be of the own server, the topmost first."""
    return all_fields(message, "Authentication-Results", above=None if server else "Received")


def read_trust(fields: Sequence[str], server: str | None, sender: str) -> Trust:
    """Return the trust in `sender`, by the results of the own server in `fields`.

    Only its topmost field counts. `server` is its name; without a name it is the topmost of all.
    """
    domain = sender.rpartition("@")[2]
    for field in fields:
        try:
            name, *results = _readable(field).split(";")
        except ValueError:
            return Trust()
        words = name.split()
        if not server or (words and words[0].lower().rstrip(".") == server.lower().rstrip(".")):
            return _read_results(results, domain)
    return Trust()


def _readable(field: str) -> str:
    """Return a field without comments; what is quoted and could be read as results becomes "?".

    The address of an envelope comes from a stranger, and its quoted part may contain anything:
    smtp.mailfrom="a; dkim=pass header.d=example.com "@evil.example. Raises `ValueError` if a
    comment or a quotation has no end, or if a comment contains quotes: nobody knows where it ends.
    """
    pieces, depth = [], 0
    for match in _PIECE.finditer(field):
        piece = match[0]
        if piece.startswith('"') and (depth or len(piece) == 1):
            raise ValueError("a quotation inside of a comment, or without an end")
        if piece == "(":
            depth += 1
        elif piece == ")" and depth:
            depth -= 1
            pieces.append(" ")
        elif piece.startswith('"'):
            value = piece[1:-1]
            pieces.append(value if _PLAIN_VALUE.fullmatch(value) else "?")
        elif not depth:
            pieces.append(piece)
    if depth:
        raise ValueError("a comment without an end")
    return "".join(pieces)


def _read_results(results: Sequence[str], domain: str) -> Trust:
    methods: set[Method] = set()
    texts = []
    for result in results:
        match = _RESULT.match(result)
        if match is None:
            continue
        method, outcome = match[1].lower(), match[2].lower()
        texts.append(f"{method}={outcome}")
        properties = {
            f"{scope}.{name}".lower(): value.lower()
            for scope, name, value in _PROPERTY.findall(result)
        }
        if outcome == "pass":
            methods |= _verified_by(method, properties, domain)
    order: tuple[Method, ...] = ("DMARC", "DKIM", "SPF")
    best = next((method for method in order if method in methods), None)
    return Trust(best, tuple(texts))


def _verified_by(method: str, properties: dict[str, str], domain: str) -> set[Method]:
    """Return the check if it is about the domain in From, and not about another one."""
    signer = properties.get("header.d") or properties.get("header.i", "").rpartition("@")[2]
    envelope = properties.get("smtp.mailfrom", "").rpartition("@")[2]
    if method == "dmarc" and properties.get("header.from", "").rpartition("@")[2] == domain:
        return {"DMARC"}
    if method == "dkim" and _speaks_for(signer, domain):
        return {"DKIM"}
    if method == "spf" and _speaks_for(envelope, domain):
        return {"SPF"}
    return set()


def _speaks_for(signer: str, domain: str) -> bool:
    """Return whether a domain speaks for another: the same one, or one above it.

    Not one below it: at many providers everybody can have a name below theirs.
    """
    is_above = domain.endswith(f".{signer}") and "." in signer
    return bool(signer) and (signer == domain or is_above)
