"""Whether arguments fit the JSON schema of a tool, and if not, why, in words for a model.

The keywords that tools are described with are looked at; any other is taken as kept. So a call is
never refused for a keyword that is not known here, and a tool still has to look at its arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Check = Callable[[Any, Any, str, "_Looking"], Iterator[str]]

# Values in one another deeper than this are not looked into.
_DEEPEST = 60


def faults(schema: Mapping[str, Any], value: Any) -> list[str]:
    """What does not fit, each with its place; empty if all does."""
    return list(_Looking(schema, schema, _DEEPEST, {}).at(value, ""))


class _Looking:
    """One schema on a value, within the document it stands in."""

    def __init__(
        self, root: Mapping[str, Any], schema: Any, left: int, known: dict[Any, list[str]]
    ) -> None:
        self.root = root
        self.schema = schema
        self._left = left
        self._known = known

    def into(self, schema: Any) -> _Looking:
        return _Looking(self.root, schema, self._left - 1, self._known)

    def at(self, value: Any, place: str) -> Iterator[str]:
        if self.schema is False:
            yield f"{place or 'the arguments'} may not be given"
        if not isinstance(self.schema, Mapping) or self._left <= 0:
            return
        # Each schema looks at each value once. One that refers to itself would go on for ever, and
        # two that refer to each other would double the work at every step.
        here = id(self.schema), id(value), place
        if here not in self._known:
            self._known[here] = []
            self._known[here] = list(self._checked(value, place))
        yield from self._known[here]

    def _checked(self, value: Any, place: str) -> Iterator[str]:
        for keyword, given in self.schema.items():
            check = _CHECKS.get(keyword)
            if check is not None:
                yield from check(given, value, place, self)


def _kind(given: Any, value: Any, place: str, looking: _Looking) -> Iterator[str]:
    names = given if isinstance(given, list) else [given]
    known = [_KINDS[name] for name in names if isinstance(name, str) and name in _KINDS]
    if len(known) == len(names) and not any(is_kind(value) for is_kind in known):
        yield f"{place or 'the arguments'} must be {_listed(names)}, not {_shown(value)}"


def _required(given: Any, value: Any, place: str, looking: _Looking) -> Iterator[str]:
    if isinstance(value, dict) and isinstance(given, list):
        for name in given:
            if name not in value:
                yield f"{_inside(place, name)} is missing"


def _properties(given: Any, value: Any, place: str, looking: _Looking) -> Iterator[str]:
    if isinstance(value, dict) and isinstance(given, Mapping):
        for name, schema in given.items():
            if name in value:
                yield from looking.into(schema).at(value[name], _inside(place, name))


def _additional(given: Any, value: Any, place: str, looking: _Looking) -> Iterator[str]:
    # With patternProperties beside it, what is additional is not known here.
    if not isinstance(value, dict) or "patternProperties" in looking.schema:
        return
    known = looking.schema.get("properties", {})
    for name in value:
        if name not in known:
            if given is False:
                allowed = f"; allowed: {_listed(known)}" if known else ""
                yield f"{_inside(place, name)} is unknown{allowed}"
            else:
                yield from looking.into(given).at(value[name], _inside(place, name))


def _items(given: Any, value: Any, place: str, looking: _Looking) -> Iterator[str]:
    if isinstance(value, list) and "prefixItems" not in looking.schema:
        for at, item in enumerate(value):
            yield from looking.into(given).at(item, f"{place}[{at}]")


def _enum(given: Any, value: Any, place: str, looking: _Looking) -> Iterator[str]:
    if isinstance(given, list) and not any(_same(value, one) for one in given):
        yield f"{place or 'the arguments'} must be one of {_listed(given)}, not {_shown(value)}"


def _const(given: Any, value: Any, place: str, looking: _Looking) -> Iterator[str]:
    yield from _enum([given], value, place, looking)


def _any_of(given: Any, value: Any, place: str, looking: _Looking) -> Iterator[str]:
    if not isinstance(given, list) or not given:
        return
    found = [list(looking.into(schema).at(value, place)) for schema in given]
    if all(found):
        # Of many ways to fit, the one that was missed by least is what was meant.
        yield from min(found, key=len)


def _one_of(given: Any, value: Any, place: str, looking: _Looking) -> Iterator[str]:
    # That two of them fit at once is for the tool to mind: a model cannot mend it from a message.
    yield from _any_of(given, value, place, looking)


def _all_of(given: Any, value: Any, place: str, looking: _Looking) -> Iterator[str]:
    for schema in given if isinstance(given, list) else ():
        yield from looking.into(schema).at(value, place)


def _reference(given: Any, value: Any, place: str, looking: _Looking) -> Iterator[str]:
    found: Any = looking.root
    if not isinstance(given, str) or not given.startswith("#"):
        return
    for part in given[1:].split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, Mapping) or name not in found:
            return
        found = found[name]
    yield from looking.into(found).at(value, place)


def _bound(words: str, is_kept: Callable[[float, float], bool]) -> Check:
    def check(given: Any, value: Any, place: str, looking: _Looking) -> Iterator[str]:
        if _is_number(value) and _is_number(given) and not is_kept(value, given):
            yield f"{place or 'the arguments'} must be {words} {given}, not {_shown(value)}"

    return check


def _size(kind: type[str] | type[list[Any]], noun: str, *, least: bool) -> Check:
    def check(given: Any, value: Any, place: str, looking: _Looking) -> Iterator[str]:
        if not isinstance(value, kind) or not _is_number(given):
            return
        size = len(value)
        if size < given if least else size > given:
            words = "at least" if least else "at most"
            yield f"{place or 'the arguments'} must have {words} {given} {noun}, not {size}"

    return check


def _pattern(given: Any, value: Any, place: str, looking: _Looking) -> Iterator[str]:
    if not isinstance(value, str) or not isinstance(given, str):
        return
    try:
        is_kept = re.search(given, value) is not None
    except re.error:
        return  # a pattern of another dialect
    if not is_kept:
        yield f"{place or 'the arguments'} must match {given!r}, not {_shown(value)}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(value: Any) -> bool:
    return _is_number(value) and value == value // 1


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON: true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    return bool(one == other)


def _inside(place: str, name: Any) -> str:
    return f"{place}.{name}" if place else str(name)


def _listed(names: Any) -> str:
    return " or ".join(str(name) for name in names) if names else "nothing"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


_KINDS: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "number": _is_number,
    "integer": _is_integer,
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}

_CHECKS: dict[str, Check] = {
    "type": _kind,
    "required": _required,
    "properties": _properties,
    "additionalProperties": _additional,
    "items": _items,
    "enum": _enum,
    "const": _const,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "allOf": _all_of,
    "$ref": _reference,
    "minimum": _bound("at least", lambda value, given: value >= given),
    "maximum": _bound("at most", lambda value, given: value <= given),
    "exclusiveMinimum": _bound("more than", lambda value, given: value > given),
    "exclusiveMaximum": _bound("less than", lambda value, given: value < given),
    "minLength": _size(str, "characters", least=True),
    "maxLength": _size(str, "characters", least=False),
    "minItems": _size(list, "items", least=True),
    "maxItems": _size(list, "items", least=False),
    "pattern": _pattern,
}
