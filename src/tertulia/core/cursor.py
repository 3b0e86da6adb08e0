"""Where a page ends and the next begins, as a text that only its maker reads."""

from __future__ import annotations

import base64
import binascii

import msgspec

from tertulia.errors import ConfigError


def write(*place: int | float) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def read(cursor: str, length: int) -> list[int]:
    """The numbers of a cursor that was handed out before."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        place = msgspec.json.decode(base64.urlsafe_b64decode(padded), type=list[int])
    except (msgspec.DecodeError, binascii.Error, ValueError, TypeError, AttributeError):
        place = []
    if len(place) != length or any(abs(number) > 2**63 - 1 for number in place):
        raise ConfigError(
            f"{cursor!r} is no cursor of this list.",
            hint="Give what the page before had as its 'next', or none to start again.",
            field="cursor",
        )
    return place
