"""What an SDK handed over, kept beside our message so that it comes back exactly as it went in.

It is kept as a value where JSON gives back the same value, so that it can be read in the store.
What JSON as we write it would change (numbers that are none, integers of any length, deep nesting)
is kept as text in the wider form that Python reads and writes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from tertulia.core.message import from_json, to_json
from tertulia.errors import IllegalMove

Kept = dict[str, Any]

_VALUE = "value"
_TEXT = "json"
_FOLLOWS = "follows"


def keep(given: Any, **fields: Any) -> Kept:
    """The form in which something given is stored, with fields of our own beside it."""
    return {**fields, **_kept(given)}


def given_back(kept: Mapping[str, Any]) -> Any:
    """What was given."""
    return kept[_VALUE] if _VALUE in kept else json.loads(kept[_TEXT])


def holds(kept: Any) -> TypeGuard[Kept]:
    """Whether this is a payload; what else stands under its name was written by somebody else."""
    return isinstance(kept, dict) and (_VALUE in kept or isinstance(kept.get(_TEXT), str))


def _kept(given: Any) -> Kept:
    try:
        if from_json(to_json(given)) == given:
            return {_VALUE: given}
    except IllegalMove:
        pass  # the wider form may do, and says what is wrong where it does not
    return {_TEXT: _text(given)}


def _text(given: Any) -> str:
    try:
        _check(given)
        return json.dumps(given, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as problem:
        raise IllegalMove(
            f"This cannot be kept exactly: {problem}.",
            hint="Give text, numbers, lists and dicts with text keys only.",
        ) from problem


def _check(value: Any) -> None:
    """Refuse what `json` would write as something else."""
    if isinstance(value, dict):
        for name, part in value.items():
            if not isinstance(name, str):
                raise TypeError(f"the key {name!r} is no text")
            _check(part)
    elif isinstance(value, list | tuple):
        for part in value:
            _check(part)
    elif not isinstance(value, str | int | float | bool | None):
        raise TypeError(f"{type(value).__name__} is not JSON")


def grouped(messages: Sequence[dict[str, Any]], field: str, kept: Kept) -> list[dict[str, Any]]:
    """Messages that stand for one thing of an SDK: the first has it, the others follow."""
    first, *rest = messages
    return [{**first, field: kept}, *({**one, field: {_FOLLOWS: True}} for one in rest)]


def follows(kept: Any) -> bool:
    """Whether a message only goes on with what the one before it holds."""
    return isinstance(kept, dict) and kept.get(_FOLLOWS) is True
