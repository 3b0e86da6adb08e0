"""Lines and server-sent events, wherever their bytes are cut."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tertulia.agents.sse import (
    LineSplitter,
    SseEvent,
    SseParser,
)

ends = st.sampled_from(["\n", "\r\n", "\r"])
texts = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=6)


def cut(body: bytes, places: Iterable[int]) -> list[bytes]:
    marks = sorted({0, len(body), *(place % (len(body) + 1) for place in places)})
    return [body[one:other] for one, other in pairwise(marks)]


places = st.lists(st.integers(0, 10_000), max_size=8)


@given(lines=st.lists(texts, max_size=5), end=ends, last=texts, places=places)
def test_lines(lines: list[str], end: str, last: str, places: list[int]) -> None:
    body = ("".join(line + end for line in lines) + last).encode()
    found = LineSplitter()
    got = [line for chunk in cut(body, places) for line in found.feed(chunk)] + found.rest()
    # A CR at the very end may be half of a CR LF, so that its empty line is not seen.
    assert [line for line in got if line] == [line for line in [*lines, last] if line]
    if end != "\r":
        assert got == lines + ([last] if last else [])


@given(
    events=st.lists(st.tuples(texts, st.lists(texts, min_size=1, max_size=3)), max_size=4),
    end=ends,
    places=places,
    has_bom=st.booleans(),
)
def test_events(
    events: list[tuple[str, list[str]]], end: str, places: list[int], has_bom: bool
) -> None:
    lines = []
    for name, data in events:
        lines += [f"event: {name}", ": a comment", "id: 7", *(f"data: {one}" for one in data), ""]
    body = (b"\xef\xbb\xbf" if has_bom else b"") + "".join(line + end for line in lines).encode()
    chunks = cut(body, places)
    found = SseParser()
    got = [event for chunk in chunks for event in found.feed(chunk)] + found.rest()
    assert got == [SseEvent(name, "\n".join(data)) for name, data in events]


def test_the_last_event_needs_no_empty_line() -> None:
    found = SseParser()
    assert found.feed(b"data:no space\ndata\nevent") == []
    assert found.rest() == [SseEvent("", "no space\n")]
    assert found.rest() == []


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert LineSplitter().feed(b"\xff\n") == ["\ufffd"]
