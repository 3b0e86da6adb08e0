"""Validates tool arguments against a JSON schema, with messages that a model can act on.

Only the keywords that are common in tool schemas are checked; any other keyword counts as
satisfied. So a call is never refused because of a keyword that is unknown here, and a tool must
still check its arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tertulia.core.text.excerpt import short_repr

# Called with the value of the keyword, the argument value, its path, and the validator.
Check = Callable[[Any, Any, str, "_Validator"], Iterator[str]]

# Values that are nested deeper than this are not checked.
_MAX_DEPTH = 60


def find_violations(schema: Mapping[str, Any], value: Any) -> list[str]:
    """Return a message for each violation, with its path; empty if the value is valid."""
    return list(_Validator(schema, schema, _MAX_DEPTH, {}).check(value, ""))


class _Validator:
    """Checks values against one schema of a document; `root` is the document, for `$ref`."""

    def __init__(
        self,
        root: Mapping[str, Any],
        schema: Any,
        depth_left: int,
        messages: dict[tuple[int, int, str], list[str]],
    ) -> None:
        self.root = root
        self.schema = schema
        self._depth_left = depth_left
        # The messages of every check that was made, by schema, value and path.
        self._messages = messages

    def with_schema(self, schema: Any) -> _Validator:
        """Return a validator for a subschema, one level deeper."""
        return _Validator(self.root, schema, self._depth_left - 1, self._messages)

    def check(self, value: Any, path: str) -> Iterator[str]:
        """Yield a message for each violation of `value`, which is at `path` in the arguments."""
        if self.schema is False:
            yield f"{path or 'the arguments'} may not be given"
        if not isinstance(self.schema, Mapping) or self._depth_left <= 0:
            return
        # Each schema checks each value once. A schema that refers to itself would never end, and
        # two schemas that refer to each other would double the work at every level.
        check_id = id(self.schema), id(value), path
        if check_id not in self._messages:
            self._messages[check_id] = []
            self._messages[check_id] = list(self._check_keywords(value, path))
        yield from self._messages[check_id]

    def _check_keywords(self, value: Any, path: str) -> Iterator[str]:
        for keyword, rule in self.schema.items():
            check = _CHECKS.get(keyword)
            if check is not None:
                yield from check(rule, value, path, self)


def _check_type(rule: Any, value: Any, path: str, validator: _Validator) -> Iterator[str]:
    names = rule if isinstance(rule, list) else [rule]
    checks = [_TYPES[name] for name in names if isinstance(name, str) and name in _TYPES]
    if len(checks) == len(names) and not any(is_type(value) for is_type in checks):
        yield f"{path or 'the arguments'} must be {_join(names)}, not {short_repr(value)}"


def _check_required(rule: Any, value: Any, path: str, validator: _Validator) -> Iterator[str]:
    if isinstance(value, dict) and isinstance(rule, list):
        for name in rule:
            if name not in value:
                yield f"{_child_path(path, name)} is missing"


def _check_properties(rule: Any, value: Any, path: str, validator: _Validator) -> Iterator[str]:
    if isinstance(value, dict) and isinstance(rule, Mapping):
        for name, schema in rule.items():
            if name in value:
                child = validator.with_schema(schema)
                yield from child.check(value[name], _child_path(path, name))


def _check_additional(rule: Any, value: Any, path: str, validator: _Validator) -> Iterator[str]:
    # patternProperties is not evaluated here, so beside it no property is known to be additional.
    if not isinstance(value, dict) or "patternProperties" in validator.schema:
        return
    properties = validator.schema.get("properties", {})
    for name in value:
        if name not in properties:
            if rule is False:
                allowed = f"; allowed: {_join(properties)}" if properties else ""
                yield f"{_child_path(path, name)} is unknown{allowed}"
            else:
                yield from validator.with_schema(rule).check(value[name], _child_path(path, name))


def _check_items(rule: Any, value: Any, path: str, validator: _Validator) -> Iterator[str]:
    if isinstance(value, list) and "prefixItems" not in validator.schema:
        for index, item in enumerate(value):
            yield from validator.with_schema(rule).check(item, f"{path}[{index}]")


def _check_enum(rule: Any, value: Any, path: str, validator: _Validator) -> Iterator[str]:
    if isinstance(rule, list) and not any(_is_equal(value, allowed) for allowed in rule):
        yield f"{path or 'the arguments'} must be one of {_join(rule)}, not {short_repr(value)}"


def _check_const(rule: Any, value: Any, path: str, validator: _Validator) -> Iterator[str]:
    yield from _check_enum([rule], value, path, validator)


def _check_any_of(rule: Any, value: Any, path: str, validator: _Validator) -> Iterator[str]:
    if not isinstance(rule, list) or not rule:
        return
    messages = [list(validator.with_schema(schema).check(value, path)) for schema in rule]
    if all(messages):
        # The alternative with the fewest violations is most likely the intended one.
        yield from min(messages, key=len)


def _check_one_of(rule: Any, value: Any, path: str, validator: _Validator) -> Iterator[str]:
    # Two matching alternatives are left to the tool: a model cannot fix that from a message.
    yield from _check_any_of(rule, value, path, validator)


def _check_all_of(rule: Any, value: Any, path: str, validator: _Validator) -> Iterator[str]:
    for schema in rule if isinstance(rule, list) else ():
        yield from validator.with_schema(schema).check(value, path)


def _check_reference(rule: Any, value: Any, path: str, validator: _Validator) -> Iterator[str]:
    schema: Any = validator.root
    if not isinstance(rule, str) or not rule.startswith("#"):
        return
    for part in rule[1:].split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(schema, Mapping) or name not in schema:
            return
        schema = schema[name]
    yield from validator.with_schema(schema).check(value, path)


def _bound_check(words: str, is_within: Callable[[float, float], bool]) -> Check:
    """Return a check for a keyword that bounds a number."""

    def check(rule: Any, value: Any, path: str, validator: _Validator) -> Iterator[str]:
        if _is_number(value) and _is_number(rule) and not is_within(value, rule):
            yield f"{path or 'the arguments'} must be {words} {rule}, not {short_repr(value)}"

    return check


def _size_check(kind: type[str] | type[list[Any]], noun: str, *, is_minimum: bool) -> Check:
    """Return a check for a keyword that bounds the length of a string or an array."""

    def check(rule: Any, value: Any, path: str, validator: _Validator) -> Iterator[str]:
        if not isinstance(value, kind) or not _is_number(rule):
            return
        size = len(value)
        if size < rule if is_minimum else size > rule:
            words = "at least" if is_minimum else "at most"
            yield f"{path or 'the arguments'} must have {words} {rule} {noun}, not {size}"

    return check


def _check_pattern(rule: Any, value: Any, path: str, validator: _Validator) -> Iterator[str]:
    if not isinstance(value, str) or not isinstance(rule, str):
        return
    try:
        is_match = re.search(rule, value) is not None
    except (re.error, OverflowError, RecursionError):
        return  # a pattern of another regular expression dialect, or too large
    if not is_match:
        yield f"{path or 'the arguments'} must match {rule!r}, not {short_repr(value)}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(value: Any) -> bool:
    return _is_number(value) and value == value // 1


def _is_equal(left: Any, right: Any) -> bool:
    """Return whether two values are equal as JSON: true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_is_equal, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(
            _is_equal(left[name], right[name]) for name in left
        )
    return bool(left == right)


def _child_path(path: str, name: Any) -> str:
    return f"{path}.{name}" if path else str(name)


def _join(names: Any) -> str:
    return " or ".join(str(name) for name in names) if names else "nothing"


_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "number": _is_number,
    "integer": _is_integer,
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}

_CHECKS: dict[str, Check] = {
    "type": _check_type,
    "required": _check_required,
    "properties": _check_properties,
    "additionalProperties": _check_additional,
    "items": _check_items,
    "enum": _check_enum,
    "const": _check_const,
    "anyOf": _check_any_of,
    "oneOf": _check_one_of,
    "allOf": _check_all_of,
    "$ref": _check_reference,
    "minimum": _bound_check("at least", lambda value, bound: value >= bound),
    "maximum": _bound_check("at most", lambda value, bound: value <= bound),
    "exclusiveMinimum": _bound_check("more than", lambda value, bound: value > bound),
    "exclusiveMaximum": _bound_check("less than", lambda value, bound: value < bound),
    "minLength": _size_check(str, "characters", is_minimum=True),
    "maxLength": _size_check(str, "characters", is_minimum=False),
    "minItems": _size_check(list, "items", is_minimum=True),
    "maxItems": _size_check(list, "items", is_minimum=False),
    "pattern": _check_pattern,
}
