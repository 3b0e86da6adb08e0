"""JSON that can be sent, whatever a platform once delivered."""

from __future__ import annotations

import json
from typing import Any

import msgspec


def encoded(value: Any) -> bytes:
    """A value as JSON. Half a surrogate pair is stored as it came, and is sent escaped."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value, str_keys=True)).encode()
