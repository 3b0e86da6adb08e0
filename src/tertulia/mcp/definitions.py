"""Definitions of tools: read from a server, bounded, named, and made acceptable to every model.

A definition that cannot be used costs its own tool only, and the reason is reported. Texts of a
server are untrusted: they are bounded and cleaned before a model reads them.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from tertulia.core.foreign_content import FOREIGN_MARK
from tertulia.core.text.excerpt import shorten
from tertulia.core.validate import is_number

MAX_DESCRIPTION: Final = 1_000
MAX_LIST: Final = 30_000  # characters of all descriptions and schemas of a server
MAX_TOOLS: Final = 100  # of all servers
_MAX_NAME: Final = 64
_HASH_LENGTH: Final = 8
_MAX_DEPTH: Final = 12
_NOT_IN_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")
_CONTROL: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]"
)
# Keywords that every provider accepts. Others only say more, and are left out.
_KEYWORDS: Final = frozenset(
    (
        "type", "description", "properties", "required", "items", "enum", "minimum", "maximum",
        "minLength", "maxLength", "pattern", "additionalProperties", "anyOf",
    )
)  # fmt: skip
_TYPES: Final = frozenset(("object", "array", "string", "number", "integer", "boolean", "null"))


class UnusableSchemaError(Exception):
    """A definition that cannot be used, with the reason."""


class ToolDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A tool of a server, as it is pinned: its name there, its texts, and its schema."""

    name: str
    description: str
    parameters: dict[str, Any]
    is_read_only: bool = False

    @property
    def hash(self) -> str:
        """The hash of the whole definition: a change of any part is a change."""
        fields = msgspec.to_builtins(self)
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


class ToolList(msgspec.Struct, frozen=True, kw_only=True):
    """The usable tools of a server, and why others are not: by name."""

    tools: tuple[ToolDefinition, ...] = ()
    problems: Mapping[str, str] = {}


def read_tools(items: Sequence[Any]) -> ToolList:
    """Return the definitions in the items of `tools/list`, sorted by name."""
    tools: dict[str, ToolDefinition] = {}
    problems: dict[str, str] = {}
    length = 0
    for number, item in enumerate(items):
        name = item.get("name") if isinstance(item, Mapping) else None
        if not isinstance(name, str) or not 0 < len(name) <= 200 or not name.isprintable():
            problems[f"tool {number + 1}"] = "it has no valid name"
            continue
        try:
            tool = _read_tool(name, item)
        except UnusableSchemaError as problem:
            problems[shorten(name, 80)] = str(problem)
            continue
        size = len(tool.description) + len(json.dumps(tool.parameters))
        if name in tools:
            problems[name] = "another tool has the same name"
        elif length + size > MAX_LIST:
            problems[name] = f"the tools of the server have more than {MAX_LIST} characters"
        else:
            length += size
            tools[name] = tool
    return ToolList(tools=tuple(tools[name] for name in sorted(tools)), problems=problems)


def offered_name(server: str, tool: str) -> str:
    """Return the name of a tool for models: valid for every provider, unique for the server."""
    name = f"{server}{FOREIGN_MARK}{_NOT_IN_NAME.sub('_', tool)}"
    if len(name) <= _MAX_NAME and _NOT_IN_NAME.search(tool) is None:
        return name
    digest = hashlib.sha256(tool.encode()).hexdigest()[:_HASH_LENGTH]
    return f"{name[: _MAX_NAME - _HASH_LENGTH - 1]}_{digest}"


def _read_tool(name: str, item: Mapping[str, Any]) -> ToolDefinition:
    description = item.get("description") or item.get("title") or ""
    if not isinstance(description, str):
        raise UnusableSchemaError("its description is not a text")
    annotations = item.get("annotations")
    is_read_only = isinstance(annotations, Mapping) and annotations.get("readOnlyHint") is True
    return ToolDefinition(
        name=name,
        description=shorten(_CONTROL.sub("", description), MAX_DESCRIPTION),
        parameters=normalise_schema(item.get("inputSchema")),
        is_read_only=is_read_only,
    )


def normalise_schema(schema: Any) -> dict[str, Any]:
    """Return the schema of a tool's arguments with what every provider accepts.

    Raise `UnusableSchemaError` if it is not the schema of an object.
    """
    if schema is None:
        schema = {"type": "object"}
    if not isinstance(schema, Mapping):
        raise UnusableSchemaError("its schema is not an object")
    if schema.get("type", "object") != "object":
        raise UnusableSchemaError("its arguments are not an object")
    result = _SchemaReader(schema).read(schema, _MAX_DEPTH)
    result["type"] = "object"
    result.pop("anyOf", None)  # refused at the top by some providers
    result.setdefault("properties", {})
    return result


class _SchemaReader:
    """Reads the schemas within one definition; `root` is the definition, for references.

    References can repeat a schema many times, so the number of schemas is limited: with more of
    them the definition would be longer than `MAX_LIST`, since each has at least two characters.
    """

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._left = MAX_LIST // 2

    def read(self, schema: Any, depth: int) -> dict[str, Any]:
        """Return a schema with the keywords that every provider accepts."""
        self._left -= 1
        if self._left < 0:
            raise UnusableSchemaError(f"its schema has more than {MAX_LIST} characters")
        if schema is True:
            return {}
        if not isinstance(schema, Mapping) or depth == 0:
            raise UnusableSchemaError("its schema cannot be read, or is nested too deeply")
        if "$ref" in schema:
            return self.read(_resolve(schema["$ref"], self._root), depth - 1)
        fields = {
            name: value
            for name, value in schema.items()
            if name in _KEYWORDS and _CHECKS.get(name, _is_anything)(value)
        }
        variants = schema.get("anyOf") or schema.get("oneOf")
        if isinstance(variants, list) and variants:
            fields["anyOf"] = [self.read(variant, depth - 1) for variant in variants]
        if "const" in schema:
            fields["enum"] = [schema["const"]]
        _read_type(fields)
        if "description" in fields:
            fields["description"] = shorten(_CONTROL.sub("", str(fields["description"])), 400)
        self._read_parts(fields, depth)
        return fields

    def _read_parts(self, fields: dict[str, Any], depth: int) -> None:
        """Read the schemas inside a schema."""
        properties = fields.pop("properties", None)
        if properties is not None:
            if not isinstance(properties, Mapping):
                raise UnusableSchemaError("its schema has properties that are not an object")
            fields["properties"] = {
                str(name): self.read(inner, depth - 1) for name, inner in properties.items()
            }
        required = fields.pop("required", None)
        names = fields.get("properties") or {}
        if isinstance(required, list):
            needed = [name for name in required if isinstance(name, str) and name in names]
            if needed:
                fields["required"] = list(dict.fromkeys(needed))
        if "items" in fields:
            fields["items"] = self.read(fields["items"], depth - 1)
        elif fields.get("type") == "array":
            fields["items"] = {}
        if not isinstance(fields.get("additionalProperties", True), bool):
            inner = fields["additionalProperties"]
            fields["additionalProperties"] = self.read(inner, depth - 1)


def _read_type(fields: dict[str, Any]) -> None:
    """Turn a list of types into alternatives; raise `UnusableSchemaError` for an unknown type."""
    types = fields.pop("type", None)
    if isinstance(types, list):
        names = [name for name in types if isinstance(name, str) and name in _TYPES]
        if names:
            fields["anyOf"] = [{"type": name} for name in names]
    elif isinstance(types, str) and types in _TYPES:
        fields["type"] = types
    elif types is not None:
        raise UnusableSchemaError(f"its schema has the unknown type {str(types)[:40]!r}")


def _is_anything(value: Any) -> bool:
    return True


def _is_number(value: Any) -> bool:
    return is_number(value) and math.isfinite(value)


def _is_length(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_pattern(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    try:
        re.compile(value)
    except (re.error, RecursionError, OverflowError):
        return False
    return True


# Keywords whose value may be wrong: then the keyword is left out. `_SchemaReader` reads the others.
_CHECKS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "anyOf": lambda value: False,
    "enum": lambda value: isinstance(value, list),
    "minimum": _is_number,
    "maximum": _is_number,
    "minLength": _is_length,
    "maxLength": _is_length,
    "pattern": _is_pattern,
}


def _resolve(reference: Any, root: Mapping[str, Any]) -> Any:
    """Return the schema that a local reference names."""
    if not isinstance(reference, str) or not reference.startswith("#/"):
        raise UnusableSchemaError("its schema refers to another document")
    schema: Any = root
    for part in reference[2:].split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(schema, Mapping) or name not in schema:
            raise UnusableSchemaError(
                f"its schema refers to {reference[:60]!r}, which is not there"
            )
        schema = schema[name]
    return schema
