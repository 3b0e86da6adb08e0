from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia import ToolCall
from tertulia.core import message
from tertulia.core.message import describe_call, draft, from_json, restore, text_of, to_json
from tertulia.errors import IllegalMove

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(values)
def test_json_is_read_back(value: Any) -> None:
    assert from_json(to_json(value)) == value


def test_role_contains_only_what_every_database_stores() -> None:
    assert draft({"role": "a\0\ud800"}).role == "a\N{REPLACEMENT CHARACTER}?"


def test_unpaired_surrogate_is_stored_as_ascii_and_read_back() -> None:
    text = to_json({"content": "\ud83d hi"})
    assert text.isascii()
    assert from_json(text) == {"content": "\ud83d hi"}


@pytest.mark.parametrize("value", [object(), {"a": {1, 2}.__iter__()}])
def test_value_that_is_not_json_is_refused(value: object) -> None:
    with pytest.raises(IllegalMove, match="cannot be stored as JSON"):
        to_json(value)


@pytest.mark.parametrize("wrap", [lambda value: [value], lambda value: {"a": value}])
def test_deep_nesting_is_refused(wrap: Callable[[Any], Any]) -> None:
    value: Any = "leaf"
    for _ in range(message.MAX_NESTING):
        value = wrap(value)
    assert from_json(to_json(value)) == value
    with pytest.raises(IllegalMove, match="nested"):
        to_json(wrap(value))


@pytest.mark.parametrize("value", [{}, {"role": ""}, {"role": 3}, "text", None])
def test_message_without_a_role_is_refused(value: Any) -> None:
    with pytest.raises(IllegalMove, match="no 'role'"):
        draft(value)


def test_small_message_is_stored_inline() -> None:
    stored = draft({"role": "user", "content": "x" * message.PART_SIZE * 2})
    assert (stored.away, stored.blobs) == (None, ())


def test_large_texts_are_stored_separately_and_restored() -> None:
    body = {
        "role": "user",
        "content": [{"type": "text", "text": "a\ud83d" * 20_000}, {"type": "text", "text": "b"}],
        "extra": "c" * 20_000,
        "same": "c" * 20_000,
    }
    stored = draft(body)
    assert len(stored.body) < 1000
    assert len(stored.blobs) == 2, "equal texts share a blob"
    assert stored.away is not None
    data = {blob.hash: blob.data or b"" for blob in stored.blobs}
    assert restore(stored.body, stored.away, data.__getitem__) == body


def test_tool_call_in_the_openai_form() -> None:
    call = ToolCall("c1", "look", {"at": 1}).to_dict()
    assert call["function"] == {"name": "look", "arguments": '{"at":1}'}
    assert ToolCall("c1", "look", "{}").to_dict()["function"]["arguments"] == "{}"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("hi", "hi"),
        (None, ""),
        ([{"type": "text", "text": "a"}, {"type": "image_url"}, "x", {"text": "b"}], "a\nb"),
        ({"text": "a"}, ""),
    ],
)
def test_text_of_a_message(content: Any, text: str) -> None:
    assert text_of({"role": "user", "content": content}) == text


@pytest.mark.parametrize("arguments", ["[" * 100_000, "not JSON"], ids=["deep", "no JSON"])
def test_call_with_arguments_that_cannot_be_read_is_described(arguments: str) -> None:
    line = describe_call(ToolCall("c1", "weather", arguments))
    assert line.startswith(f"weather({arguments[:6]}")
    assert len(line) <= 200
