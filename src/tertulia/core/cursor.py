"""Cursors: the position after a page of results, as opaque text."""

from __future__ import annotations

import base64
import binascii

import msgspec

from tertulia.core.text.excerpt import short_repr
from tertulia.errors import ConfigError


def encode(*position: int) -> str:
    """Return the cursor for a position, given as the numbers of its sort key."""
    return base64.urlsafe_b64encode(msgspec.json.encode(position)).decode().rstrip("=")


def decode(cursor: str, length: int) -> list[int]:
    """Return the numbers of a cursor; raise `ConfigError` if it has not `length` of them."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        position = msgspec.json.decode(base64.urlsafe_b64decode(padded), type=list[int])
    except (msgspec.DecodeError, binascii.Error, ValueError, TypeError, AttributeError):
        position = []
    if len(position) != length or any(abs(number) > 2**63 - 1 for number in position):
        raise ConfigError(
            f"Invalid cursor {short_repr(cursor)} for this list.",
            hint="Use the 'next' value of the previous page, or no cursor to start again.",
            field="cursor",
        )
    return position
