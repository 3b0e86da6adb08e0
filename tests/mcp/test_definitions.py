"""Definitions of foreign tools: bounded, named, and with a schema that every model accepts."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.mcp.definitions import (
    MAX_DESCRIPTION,
    MAX_LIST,
    UnusableSchemaError,
    normalise_schema,
    offered_name,
    read_tools,
)

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=8,
)
KEYWORDS = st.sampled_from(
    [
        "type", "properties", "items", "required", "enum", "anyOf", "$ref", "pattern", "oneOf",
        "minimum", "maxLength", "additionalProperties", "description", "const",
    ]
)  # fmt: skip
WORDS = st.sampled_from(["object", "array", "string", "#", "(", "a{99999999999}", "\ud800"])
PARTS = st.recursive(
    st.dictionaries(KEYWORDS, JSON | WORDS | st.lists(JSON | WORDS, max_size=2), max_size=3),
    lambda inner: (
        st.fixed_dictionaries({"properties": st.dictionaries(st.text(max_size=3), inner)})
        | st.fixed_dictionaries({"items": inner})
        | st.fixed_dictionaries({"anyOf": st.lists(inner, max_size=2)})
    ),
    max_leaves=4,
)
SCHEMAS = st.fixed_dictionaries({"properties": st.dictionaries(st.text(max_size=3), PARTS)}) | PARTS


@given(
    st.lists(
        st.fixed_dictionaries({"name": JSON | WORDS, "inputSchema": SCHEMAS}) | JSON, max_size=4
    )
)
def test_any_list_of_tools_can_be_read(items: list[Any]) -> None:
    tools = read_tools(items)
    for tool in tools.tools:
        assert tool.parameters["type"] == "object"
        assert isinstance(tool.parameters["properties"], dict)
        assert NAME.fullmatch(offered_name("server", tool.name))


@given(SCHEMAS)
def test_every_usable_schema_is_a_valid_one(schema: dict[str, Any]) -> None:
    with suppress(UnusableSchemaError):
        jsonschema.Draft202012Validator.check_schema(normalise_schema(schema))


@given(st.text(min_size=1, max_size=120), st.text(min_size=1, max_size=120))
def test_offered_names_are_valid_and_differ(first: str, second: str) -> None:
    names = offered_name("server", first), offered_name("server", second)
    assert all(NAME.fullmatch(name) for name in names)
    assert (names[0] == names[1]) == (first == second)


def test_schema_is_reduced_and_references_are_resolved() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"City": {"type": "string", "format": "city", "minLength": 1}},
        "properties": {
            "city": {"$ref": "#/$defs/City"},
            "unit": {"const": "C"},
            "day": {"type": ["string", "null"]},
            "tags": {"type": "array"},
            "odd": {"type": "string", "pattern": "(?<bad"},
        },
        "required": ["city", "gone"],
        "anyOf": [{"required": ["city"]}],
    }
    assert normalise_schema(schema) == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "minLength": 1},
            "unit": {"enum": ["C"]},
            "day": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "tags": {"type": "array", "items": {}},
            "odd": {"type": "string"},
        },
        "required": ["city"],
    }
    jsonschema.Draft202012Validator.check_schema(normalise_schema(schema))


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array"},
        {"type": "object", "properties": 7},
        {"type": "object", "properties": {"a": {"type": "file"}}},
        {"type": "object", "properties": {"a": {"$ref": "https://example.com/a"}}},
        {"$ref": "#"},
        {"type": "object", "$defs": {"a": {"$ref": "#/$defs/a"}}, "items": {"$ref": "#/$defs/a"}},
    ],
)
def test_impossible_schemas_are_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(UnusableSchemaError):
        normalise_schema(schema)


@pytest.mark.parametrize("value", [{"a": 1}, ["string", {}], [[]], 7, []])
def test_type_that_is_no_name_is_refused_or_left_out(value: Any) -> None:
    tools = read_tools(
        [
            {"name": "odd", "inputSchema": {"properties": {"a": {"type": value}}}},
            {"name": "plain", "inputSchema": {"properties": {"a": {"type": "string"}}}},
        ]
    )
    assert tools.tools[-1].name == "plain"


def test_values_that_no_keyword_can_have_are_left_out() -> None:
    schema = {
        "type": "string", "enum": 7, "minLength": "long", "maxLength": -1, "minimum": "low",
        "pattern": "a{99999999999}", "anyOf": [],
    }  # fmt: skip
    properties = normalise_schema({"properties": {"a": schema}})["properties"]
    assert properties == {"a": {"type": "string"}}


def test_name_that_is_no_text_is_refused() -> None:
    tools = read_tools([{"name": "half a pair \ud800"}, {"name": "two\nlines"}, {"name": "good"}])
    assert [tool.name for tool in tools.tools] == ["good"]
    assert list(tools.problems) == ["tool 1", "tool 2"]


def test_schema_that_grows_by_its_references_is_refused() -> None:
    # Forty properties on each of four levels: 2,560,000 schemas in a definition of 8 kB.
    levels = [
        {"properties": {f"p{n}": {"$ref": f"#/$defs/level{level + 1}"} for n in range(40)}}
        for level in range(4)
    ]
    defs = {f"level{level}": schema for level, schema in enumerate([*levels, {"type": "string"}])}
    schema = {"$defs": defs, "properties": {"a": {"$ref": "#/$defs/level0"}}}
    with pytest.raises(UnusableSchemaError, match=str(MAX_LIST)):
        normalise_schema(schema)


def test_texts_are_bounded_and_have_no_control_characters() -> None:
    (tool,) = read_tools([{"name": "a", "description": "x\x1b[31m\u202e" + "y" * 5000}]).tools
    assert len(tool.description) == MAX_DESCRIPTION
    assert tool.description.startswith("x[31my")
