"""Schema validation: it accepts and refuses the same arguments as a full validator."""

from __future__ import annotations

from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.agents.json_schema import find_violations

names = st.sampled_from(["a", "b", "c"])
values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 1.0, "", "x", "yes"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
kinds = st.sampled_from(["object", "array", "string", "number", "integer", "boolean", "null"])
plain = st.fixed_dictionaries(
    {},
    optional={
        "type": kinds | st.lists(kinds, min_size=1, max_size=2, unique=True),
        "enum": st.lists(values, min_size=1, max_size=3),
        "const": values,
        "minimum": st.integers(-2, 2),
        "exclusiveMaximum": st.integers(-2, 3),
        "minLength": st.integers(0, 3),
        "maxItems": st.integers(0, 2),
        "pattern": st.sampled_from(["^x", "e"]),
        "required": st.lists(names, max_size=2, unique=True),
        "$ref": st.sampled_from(["#/$defs/word", "#/$defs/tree"]),
        "title": st.just("something else"),
    },
)
schemas = st.recursive(
    st.booleans() | plain,
    lambda inner: st.builds(
        lambda left, right: {**left, **right},
        plain,
        st.fixed_dictionaries(
            {},
            optional={
                "properties": st.dictionaries(names, inner, max_size=3),
                "additionalProperties": inner,
                "items": inner,
                "anyOf": st.lists(inner, min_size=1, max_size=3),
                "allOf": st.lists(inner, min_size=1, max_size=2),
            },
        ),
    ),
    max_leaves=5,
).filter(lambda schema: isinstance(schema, dict))


TREE = {"type": ["object", "string"], "properties": {"a": {"$ref": "#/$defs/tree"}}}


@given(schema=schemas, value=values)
def test_verdict_equals_that_of_a_full_validator(schema: dict[str, Any], value: Any) -> None:
    schema = {**schema, "$defs": {"word": {"type": "string"}, "tree": TREE}}
    expected = jsonschema.Draft202012Validator(schema).is_valid(value)
    assert (find_violations(schema, value) == []) == expected


def test_recursive_schema_ends() -> None:
    itself = {"$ref": "#"}
    assert (
        find_violations({"allOf": [itself] * 9, "anyOf": [itself] * 9, "items": itself}, [[[]]])
        == []
    )
    looped = {"properties": {"next": itself, "word": {"type": "string"}}}
    assert find_violations(looped, {"next": {"next": {"word": 1}}}) == [
        "next.next.word must be string, not 1"
    ]


@pytest.mark.parametrize(
    ("schema", "value", "messages"),
    [
        ({"type": "object", "required": ["city"]}, {}, ["city is missing"]),
        (
            {"properties": {"days": {"type": "integer", "maximum": 7}}},
            {"days": 9},
            ["days must be at most 7, not 9"],
        ),
        (
            {"properties": {"to": {"items": {"type": "string"}}}},
            {"to": ["a", 1]},
            ["to[1] must be string, not 1"],
        ),
        (
            {"properties": {"unit": {"enum": ["C", "F"]}}},
            {"unit": "K"},
            ["unit must be one of C or F, not 'K'"],
        ),
        ({"not": {}, "format": "odd", "if": False}, {}, []),
        ({"$ref": "https://example.com/schema"}, {}, []),
        ({"pattern": "("}, "x", []),
        ({"type": "mystery"}, {}, []),
    ],
)
def test_messages(schema: dict[str, Any], value: Any, messages: list[str]) -> None:
    assert find_violations(schema, value) == messages


def test_pattern_that_python_cannot_read_is_left_to_the_tool() -> None:
    assert find_violations({"pattern": "a{99999999999}"}, "text") == []
