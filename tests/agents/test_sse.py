"""Lines and server-sent events from chunks that are cut anywhere."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tertulia.agents.sse import LineSplitter, SseEvent, SseParser

ends = st.sampled_from(["\n", "\r\n", "\r"])
texts = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=6)


def cut(body: bytes, positions: Iterable[int]) -> list[bytes]:
    cuts = sorted({0, len(body), *(position % (len(body) + 1) for position in positions)})
    return [body[start:end] for start, end in pairwise(cuts)]


positions = st.lists(st.integers(0, 10_000), max_size=8)


@given(lines=st.lists(texts, max_size=5), end=ends, last=texts, positions=positions)
def test_lines_from_chunks_cut_anywhere(
    lines: list[str], end: str, last: str, positions: list[int]
) -> None:
    body = ("".join(line + end for line in lines) + last).encode()
    splitter = LineSplitter()
    chunks = cut(body, positions)
    got = [line for chunk in chunks for line in splitter.feed(chunk)] + splitter.rest()
    # A CR at the very end may be half of a CR LF, so the empty line after it is not reported.
    assert [line for line in got if line] == [line for line in [*lines, last] if line]
    if end != "\r":
        assert got == lines + ([last] if last else [])


@given(
    events=st.lists(st.tuples(texts, st.lists(texts, min_size=1, max_size=3)), max_size=4),
    end=ends,
    positions=positions,
    has_bom=st.booleans(),
)
def test_events_from_chunks_cut_anywhere(
    events: list[tuple[str, list[str]]], end: str, positions: list[int], has_bom: bool
) -> None:
    lines = []
    for name, data in events:
        lines += [f"event: {name}", ": a comment", "id: 7", *(f"data: {line}" for line in data), ""]
    body = (b"\xef\xbb\xbf" if has_bom else b"") + "".join(line + end for line in lines).encode()
    chunks = cut(body, positions)
    parser = SseParser()
    got = [event for chunk in chunks for event in parser.feed(chunk)] + parser.rest()
    assert got == [SseEvent(name, "\n".join(data)) for name, data in events]


def test_last_event_needs_no_empty_line() -> None:
    parser = SseParser()
    assert parser.feed(b"data:no space\ndata\nevent") == []
    assert parser.rest() == [SseEvent("", "no space\n")]
    assert parser.rest() == []


def test_invalid_bytes_are_replaced() -> None:
    assert LineSplitter().feed(b"\xff\n") == ["\ufffd"]
