"""The length of tool results: a model is shown 40,000 characters, people a million."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.tool_result import MAX_SHOWN, MAX_STORED, limit_result

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


def test_stored_text_is_limited_too() -> None:
    _, whole = limit_result("x" * (MAX_STORED + 1234))
    assert whole is not None
    assert whole.endswith("x\n[… 1,234 more characters were left out]")
