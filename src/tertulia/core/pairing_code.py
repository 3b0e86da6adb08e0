"""Pairing codes that people type: short, hard to guess, hard to misread."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from datetime import timedelta
from typing import Final

LENGTH: Final = 8
# Without 0 and O, and without 1, I and L: 31 characters, so 8.5 × 10¹¹ codes of length eight.
ALPHABET: Final = "23456789ABCDEFGHJKMNPQRSTUVWXYZ"
LIFETIME: Final = timedelta(hours=1)  # of a code
MAX_PENDING: Final = 3  # for each platform; then the oldest is replaced
REFUSAL: Final = timedelta(days=1)  # how long a person whom the owner refused gets no code
MIN_INTERVAL: Final = timedelta(minutes=10)  # between two codes for one person
MAX_WRONG_TRIES: Final = 5  # within a lifetime, then no code is accepted


def new_code() -> str:
    """Return a random code."""
    return "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))


def hash_code(code: str, secret: bytes) -> str:
    """Return the keyed hash that is stored: a reader of the database cannot use the code."""
    letters = "".join(char for char in code.upper() if char.isalnum())
    return hmac.new(secret, letters.encode(), hashlib.sha256).hexdigest()
