"""The SDK's own object, stored beside our message so that it is read back exactly as it was passed.

It is stored as a JSON value if our JSON reads back the same value, so that people can read it in
the store. Values that our JSON would change (NaN and infinities, integers of any length, deep
nesting) are stored as text, in the wider JSON that Python's `json` module reads and writes
(decision 0007).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from tertulia.core.message import from_json, to_json
from tertulia.errors import IllegalMove

Payload = dict[str, Any]

_VALUE = "value"
_TEXT = "json"
_FOLLOWS = "follows"


def to_payload(value: Any, **fields: Any) -> Payload:
    """Return the stored form of an SDK object, with fields of our own beside it.

    Raises `IllegalMove` if it cannot be stored exactly.
    """
    return {**fields, **_encode(value)}


def from_payload(payload: Mapping[str, Any]) -> Any:
    """Return the SDK object of a payload."""
    return payload[_VALUE] if _VALUE in payload else json.loads(payload[_TEXT])


def is_payload(value: Any) -> TypeGuard[Payload]:
    """Return whether a value is a payload; other writers may use the same field name."""
    return isinstance(value, dict) and (_VALUE in value or isinstance(value.get(_TEXT), str))


def _encode(value: Any) -> Payload:
    try:
        if from_json(to_json(value)) == value:
            return {_VALUE: value}
    except IllegalMove:
        pass  # Try the wider JSON below; it raises with the reason if it cannot hold the value.
    return {_TEXT: _to_python_json(value)}


def _to_python_json(value: Any) -> str:
    try:
        _check_exact(value)
        return json.dumps(value, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as problem:
        raise IllegalMove(
            f"This value cannot be kept exactly: {problem}.",
            hint="Pass only text, numbers, booleans, None, lists, and dicts with text keys.",
        ) from problem


def _check_exact(value: Any) -> None:
    """Raise TypeError for a value that `json` would write as something else."""
    if isinstance(value, dict):
        for name, part in value.items():
            if not isinstance(name, str):
                raise TypeError(f"the key {name!r} is not text")
            _check_exact(part)
    elif isinstance(value, list | tuple):
        for part in value:
            _check_exact(part)
    elif not isinstance(value, str | int | float | bool | None):
        raise TypeError(f"{type(value).__name__} is not JSON")


def attach_payload(
    messages: Sequence[dict[str, Any]], field: str, payload: Payload
) -> list[dict[str, Any]]:
    """Return messages that represent one SDK object: the first has the payload, the rest follow."""
    first, *rest = messages
    return [
        {**first, field: payload},
        *({**message, field: {_FOLLOWS: True}} for message in rest),
    ]


def is_continuation(value: Any) -> bool:
    """Return whether a message only continues the SDK object of the message before it."""
    return isinstance(value, dict) and value.get(_FOLLOWS) is True
