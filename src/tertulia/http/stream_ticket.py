"""Tickets for streams: an `EventSource` of a page cannot send headers, so its address must suffice.

A ticket is signed by this installation, opens the stream of one chat of one person, and nothing
else, and works for a minute only: addresses get into logs (decision 0053).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from datetime import datetime, timedelta
from typing import Final

import msgspec

LIFETIME: Final = timedelta(minutes=1)
_SIGNATURE_LENGTH: Final = 32


class StreamTicket(msgspec.Struct, frozen=True, kw_only=True):
    """Whose stream it is: the name of the token, the chat, and the visitor of a guest's token."""

    token: str
    chat: str
    visitor: str
    until: datetime


def seal_ticket(ticket: StreamTicket, key: bytes) -> str:
    """Return the ticket as text for an address."""
    data = base64.urlsafe_b64encode(msgspec.json.encode(ticket)).rstrip(b"=")
    return f"{data.decode()}.{_sign(data, key)}"


def open_ticket(text: str, key: bytes, now: datetime) -> StreamTicket | None:
    """Return the ticket of a text, or None if it was not made with this key or has expired."""
    data, _, signature = text.partition(".")
    encoded = data.encode("ascii", "replace")
    if not hmac.compare_digest(_sign(encoded, key).encode(), signature.encode("utf-8", "replace")):
        return None
    content = base64.urlsafe_b64decode(encoded + b"=" * (-len(encoded) % 4))
    ticket = msgspec.json.decode(content, type=StreamTicket)
    return ticket if now < ticket.until else None


def _sign(data: bytes, key: bytes) -> str:
    return hmac.new(key, data, hashlib.sha256).hexdigest()[:_SIGNATURE_LENGTH]
