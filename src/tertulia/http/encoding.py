"""JSON encoding of any stored value, including text that is not valid Unicode."""

from __future__ import annotations

import json
from typing import Any

import msgspec


def encode_json(value: Any) -> bytes:
    """Return a value as JSON. A lone surrogate is stored as it was received, and sent escaped."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value, str_keys=True)).encode()
