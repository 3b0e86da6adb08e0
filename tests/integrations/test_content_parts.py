"""Conversion of SDK content into message content."""

from __future__ import annotations

from typing import Any

import pytest

from tertulia.integrations.content_parts import (
    assistant_message,
    image_part,
    join_parts,
    placeholder_part,
    text_part,
    to_text,
    tool_call,
    tool_message,
)

pytestmark = pytest.mark.check


def test_text_parts_are_joined_into_one_text() -> None:
    assert join_parts([text_part("one"), text_part("two")]) == "one\ntwo"


def test_parts_with_an_image_stay_parts() -> None:
    parts = [text_part("look"), image_part("https://x/y.png")]
    assert join_parts(parts) == parts


def test_no_parts_are_no_content() -> None:
    assert join_parts([]) is None


@pytest.mark.parametrize(
    ("part", "text"),
    [("plain", "plain"), ({"type": "audio"}, "[audio]"), ({"type": 7}, "[part]"), (None, "[part]")],
)
def test_an_unknown_part_becomes_a_placeholder(part: Any, text: str) -> None:
    assert placeholder_part(part) == {"type": "text", "text": text}


@pytest.mark.parametrize(
    ("value", "text"), [("as it is", "as it is"), ({"ñ": 1}, '{"ñ": 1}'), (None, "null")]
)
def test_a_result_is_text_or_json(value: Any, text: str) -> None:
    assert to_text(value) == text


def test_a_tool_call_has_an_id_and_text_arguments() -> None:
    assert tool_call(None, None, {"at": "sky"}) == {
        "id": "call",
        "type": "function",
        "function": {"name": "", "arguments": '{"at": "sky"}'},
    }


def test_messages_leave_out_empty_fields() -> None:
    assert assistant_message("hi") == {"role": "assistant", "content": "hi"}
    call = tool_call("c1", "look", "{}")
    assert assistant_message(None, [call])["tool_calls"] == [call]
    message = {"role": "tool", "tool_call_id": "c1", "content": ""}
    assert tool_message("c1", None) == message
    assert tool_message("c1", None, "look") == {**message, "name": "look"}
