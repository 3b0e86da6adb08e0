"""The length of tool results: a model is shown 40,000 characters, people a million."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.tool_result import MAX_SHOWN, MAX_STORED, WHOLE, limit_result, whole_text

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
texts = st.builds(lambda piece, times: piece * times, st.text(max_size=50), st.integers(0, 3000))


def text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


@given(texts | st.lists(st.just(IMAGE) | texts.map(text_part), max_size=4))
def test_content_is_unchanged_or_short(content: Any) -> None:
    shown, whole = limit_result(content)
    parts = [text_part(shown)] if isinstance(shown, str) else shown
    length = sum(len(part["text"]) for part in parts if "text" in part)
    assert length <= MAX_SHOWN + len(parts)
    assert isinstance(shown, list) is isinstance(content, list)
    if whole is None:
        assert shown == content
    else:
        assert len(whole) > MAX_SHOWN
        assert parts.count(IMAGE) == (content.count(IMAGE) if isinstance(content, list) else 0)


@pytest.mark.parametrize("is_list", [False, True])
def test_long_result_keeps_head_tail_and_whole(is_list: bool) -> None:
    text = "head " + "x" * 60_000 + " tail"
    shown, whole = limit_result([text_part(text), IMAGE] if is_list else text)
    start = shown if isinstance(shown, str) else shown[0]["text"]
    assert start.startswith("head ")
    assert start.endswith(" tail")
    assert "characters left out" in start
    assert whole == text
    assert is_list is (isinstance(shown, list) and IMAGE in shown)


def test_stored_text_is_limited_too_and_keeps_its_ends() -> None:
    text = "head " + "x" * (MAX_STORED + 1234) + " tail"
    shown, whole = limit_result(text)
    assert whole is not None
    assert len(whole) <= MAX_STORED
    assert whole.startswith("head x")
    assert whole.endswith("x tail")
    assert f"of {len(text)} characters left out" in whole
    assert f"of {len(text)} characters left out" in str(shown)
    assert whole_text({"content": shown, WHOLE: whole}) == whole


@given(texts | st.lists(st.just(IMAGE) | texts.map(text_part), max_size=4))
def test_whole_text_of_a_result_is_found_again(content: Any) -> None:
    shown, whole = limit_result(content)
    assert whole_text({"content": shown, WHOLE: whole}) == whole


@pytest.mark.parametrize(
    "whole", ["The invoice was paid.", "x" * 50_000, "y" * 60_000, "", None, 5, ["x"]]
)
def test_a_field_of_a_client_does_not_replace_the_content(whole: Any) -> None:
    """A tool result of an API client may have any fields."""
    long, _ = limit_result("x" * 30_000 + "!" + "x" * 30_000 + "?")
    for content in ("It was refused.", long, [text_part("It was refused.")], [], None, {"a": 1}):
        assert whole_text({"content": content, WHOLE: whole}) is None
