"""Codes that people type: short, hard to guess, hard to misread."""

from __future__ import annotations

import hashlib
import hmac
import os

LENGTH = 8
# No 0 and O, no 1, I and L: 31 signs, so eight of them are 8.5 × 10¹¹ codes.
SIGNS = "23456789ABCDEFGHJKMNPQRSTUVWXYZ"


def new_code() -> str:
    """A random code."""
    return "".join(SIGNS[_below(len(SIGNS))] for _ in range(LENGTH))


def hashed(code: str, secret: bytes) -> str:
    """What is stored of a code: who reads the database cannot use it."""
    plain = "".join(sign for sign in code.upper() if sign.isalnum())
    return hmac.new(secret, plain.encode(), hashlib.sha256).hexdigest()


def _below(limit: int) -> int:
    """A random number below `limit`, each equally likely."""
    ceiling = 256 - 256 % limit
    while True:
        (byte,) = os.urandom(1)
        if byte < ceiling:
            return byte % limit
