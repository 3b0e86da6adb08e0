"""Texts, tool results and tool calls that are cut in the middle."""

from __future__ import annotations

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.history.shortening import shorten_call, shorten_content, shorten_middle

_MARK = re.compile(r"\n\[… (\d+) of (\d+) characters left out …\]\n")


@given(st.text(st.characters(exclude_characters="…")), st.integers(0, 300))
def test_a_text_keeps_its_head_and_its_tail_and_says_how_much_is_missing(
    text: str, limit: int
) -> None:
    short = shorten_middle(text, limit)
    if len(text) <= limit:
        assert short == text
        return
    head, left, total, tail = _MARK.split(short)
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) + int(left) + len(tail) == int(total) == len(text)


def test_a_result_without_a_limit_stays_whole() -> None:
    assert shorten_content("a" * 10_000, None) == "a" * 10_000
    assert len(shorten_content("a" * 10_000, 400)) <= 400


def test_shortened_arguments_stay_a_json_object() -> None:
    long_text = json.dumps({"text": "a" * 5_000})
    long_list = json.dumps({"n": [1] * 5_000})
    for arguments in (long_text, long_list, "[" * 5_000):
        call = {"id": "c", "function": {"name": "write", "arguments": arguments}}
        short = shorten_call(call, 400)["function"]["arguments"]
        assert isinstance(json.loads(short), dict)
        assert len(short) <= 2 * 400
    assert shorten_call(call, 1_000_000) is call
