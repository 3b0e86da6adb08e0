"""Short texts that a client carries and only this installation can read and make.

The text is encrypted with a stream of keyed hashes that begins at a tag, and the tag is a keyed
hash of a random number and the text: after any change the tag no longer matches.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
from typing import Final

_TAG_BYTES: Final = 16
_NONCE_BYTES: Final = 8
_BLOCK: Final = 64


def seal(key: bytes, text: str) -> str:
    """Return the text in letters that are different each time and tell nothing about it."""
    plain = os.urandom(_NONCE_BYTES) + text.encode("utf-8", "surrogatepass")
    tag = _tag(key, plain)
    return base64.urlsafe_b64encode(tag + _encrypt(key, tag, plain)).decode().rstrip("=")


def unseal(key: bytes, sealed: str) -> str | None:
    """Return the text, or None if it was not sealed with this key or was changed."""
    try:
        data = base64.urlsafe_b64decode(sealed.encode("ascii") + b"=" * (-len(sealed) % 4))
    except (binascii.Error, ValueError):
        return None
    tag, plain = data[:_TAG_BYTES], _encrypt(key, data[:_TAG_BYTES], data[_TAG_BYTES:])
    if len(plain) < _NONCE_BYTES or not hmac.compare_digest(tag, _tag(key, plain)):
        return None
    return plain[_NONCE_BYTES:].decode("utf-8", "surrogatepass")


def _tag(key: bytes, plain: bytes) -> bytes:
    return hashlib.blake2b(plain, key=key[:64], digest_size=_TAG_BYTES, person=b"tag").digest()


def _encrypt(key: bytes, tag: bytes, data: bytes) -> bytes:
    """Return the data combined with the stream of the tag; applied twice it is the data again."""
    blocks = range(-(-len(data) // _BLOCK))
    stream = b"".join(
        hashlib.blake2b(tag + number.to_bytes(8), key=key[:64], person=b"stream").digest()
        for number in blocks
    )
    return bytes(a ^ b for a, b in zip(data, stream, strict=False))
