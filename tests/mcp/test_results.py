"""Results of MCP tools: text and images only, and few images."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.mcp.results import INPUT_DECLINED, to_content


@pytest.mark.parametrize(
    ("result", "content"),
    [
        ({"content": [{"type": "text", "text": "hi"}]}, "hi"),
        ({"content": [{"type": "text", "text": "no"}], "isError": True}, "Error: no"),
        ({"content": []}, "The tool returned nothing."),
        ({"structuredContent": {"a": 1}}, '{"a": 1}'),
        ({"content": [{"type": "resource_link", "uri": "file:///a"}]},
         "[link to the resource file:///a]"),
        ({"content": [{"type": "audio", "data": "…"}]}, "[audio that cannot be shown here]"),
        ({"resultType": "input_required"}, INPUT_DECLINED),
    ],
)  # fmt: skip
def test_parts(result: dict[str, Any], content: str) -> None:
    assert to_content(result) == content


def test_images_are_bounded() -> None:
    image = {"type": "image", "data": "QUJD", "mimeType": "image/png"}
    large = {"type": "image", "data": "A" * 2_000_000, "mimeType": "image/png"}
    content = to_content({"content": [image, large]})
    assert isinstance(content, list)
    assert [part["type"] for part in content] == ["text", "image_url"]


@given(st.dictionaries(st.sampled_from(["content", "isError", "structuredContent"]), st.text()))
def test_any_result_is_content(result: dict[str, Any]) -> None:
    assert to_content(result)
