from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from tertulia.core.history.content import (
    ASSISTANT_PARTS,
    USER_PARTS,
    describe_part,
    flatten_content,
    has_content,
    make_json_safe,
    normalise_content,
    replace_invalid,
)
from tests.legality import generated_messages

IMAGE = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}


def test_valid_content_stays_the_same_object() -> None:
    content = [{"type": "text", "text": "look"}, IMAGE]
    assert normalise_content(content, USER_PARTS) is content


@pytest.mark.parametrize(
    ("content", "normalised"),
    [
        ("text", "text"),
        (None, None),
        ([], None),
        ([None, {"type": "thinking", "thinking": "hm"}], None),
        ({"a": 1}, '{"a": 1}'),
        ([IMAGE], [{"type": "text", "text": "[image: https://example.org/a.png]"}]),
        (["bare"], [{"type": "text", "text": "bare"}]),
        ([{"type": "input_text", "text": "x"}], [{"type": "text", "text": "x"}]),
        ([{"type": "text", "text": " "}], None),
    ],
)
def test_other_content_becomes_text(content: Any, normalised: Any) -> None:
    assert normalise_content(content) == normalised


def test_parts_are_accepted_only_in_a_valid_form() -> None:
    audio = {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}}
    assert normalise_content([audio], USER_PARTS) == [audio]
    broken = {"type": "input_audio", "input_audio": {"data": "AA==", "format": "ogg"}}
    assert normalise_content([broken], USER_PARTS) == [{"type": "text", "text": "[input_audio]"}]
    short = {"type": "image_url", "image_url": "https://example.org/a.png"}
    assert normalise_content([short], USER_PARTS) == [IMAGE]


def test_flat_content_is_one_text() -> None:
    refusal = {"type": "refusal", "refusal": "no"}
    assert flatten_content([{"type": "text", "text": "a"}, refusal, IMAGE]).splitlines() == [
        "a",
        "no",
        "[image: https://example.org/a.png]",
    ]
    assert normalise_content([refusal], ASSISTANT_PARTS) == [refusal]


@pytest.mark.parametrize(
    ("content", "is_content"),
    [("x", True), (" \n", False), ("", False), (None, False), ([], False), ([IMAGE], True)],
)
def test_blank_content_is_empty(content: Any, is_content: bool) -> None:
    assert has_content(content) is is_content


def test_embedded_image_is_described_without_its_data() -> None:
    assert describe_part(
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    ) == ("[image]")
    assert describe_part({"type": "video\n# x"}) == "[video # x]"


def test_surrogates_are_replaced() -> None:
    assert replace_invalid("a\ud83db") == "a\ufffdb"


@given(generated_messages.values)
def test_any_value_becomes_valid_json(value: Any) -> None:
    json.dumps(make_json_safe(value), ensure_ascii=False, allow_nan=False).encode("utf-8")


def test_nan_and_infinity_become_null() -> None:
    assert make_json_safe({"a": [float("nan"), float("inf"), 1.5]}) == {"a": [None, None, 1.5]}
