"""Names and secrets of the tokens that the server and the clients of the row `crowd` share."""

from __future__ import annotations

FLOODER = "flooder"


def secret_of(name: str) -> str:
    """Return the secret of a token."""
    return f"{name}-secret-0123456789"
