"""Views against a plain list of messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.history.view import (
    Span,
    View,
    index_of,
    newest_spans,
    oldest_spans,
    slice_spans,
    view_of_spans,
)

Visible = list[tuple[int, int]]


def messages_of(spans: list[Span]) -> Visible:
    return [(span.log, seq) for span in spans for seq in range(span.first, span.last + 1)]


@st.composite
def span_lists(draw: st.DrawFn) -> list[Span]:
    """Ascending spans of one log after another, as views have them."""
    spans, seq = [], 0
    for log in (1, 2):
        for _ in range(draw(st.integers(0, 2))):
            first = seq + draw(st.integers(1, 3))
            seq = first + draw(st.integers(0, 4))
            spans.append(Span(log, first, seq))
    return spans


def test_whole_view_includes_later_messages() -> None:
    view = View.whole(7)
    assert view.spans(0) == []
    assert messages_of(view.spans(2)) == [(7, 1), (7, 2)]
    assert view.count(5) == 5
    assert view.logs() == {7}


@given(span_lists())
def test_view_of_spans_shows_them_and_everything_later(spans: list[Span]) -> None:
    last = max((span.last for span in spans), default=0)
    view = view_of_spans(spans, 2, last)
    assert messages_of(view.spans(last)) == messages_of(spans)
    assert messages_of(view.spans(last + 2)) == [*messages_of(spans), (2, last + 1), (2, last + 2)]


def test_adjacent_spans_are_joined() -> None:
    assert view_of_spans([Span(1, 1, 3), Span(1, 4, 6)], 1, 6).ranges == ((1, 1, None),)
    assert view_of_spans([Span(1, 1, 3), Span(1, 5, 6)], 1, 6).ranges == ((1, 1, 3), (1, 5, None))


@given(span_lists(), st.integers(0, 20))
def test_newest_and_oldest_messages(spans: list[Span], count: int) -> None:
    everything = messages_of(spans)
    assert messages_of(oldest_spans(spans, count)) == everything[:count]
    assert messages_of(newest_spans(spans, count)) == everything[max(0, len(everything) - count) :]


@given(span_lists())
def test_before_since_and_after_split_the_view_at_a_message(spans: list[Span]) -> None:
    last = max((span.last for span in spans), default=0)
    view = view_of_spans(spans, 3, last)
    everything = messages_of(spans)
    for index, (log, seq) in enumerate(everything):
        assert messages_of(view.before(log, seq, last)) == everything[:index]
        assert messages_of(view.since(log, seq, last)) == everything[index:]
        assert messages_of(view.after(log, seq, last)) == everything[index + 1 :]
        assert view.contains(log, seq, last)
        assert view.locate(seq, last) == log


def test_message_outside_the_view_is_not_found() -> None:
    view = view_of_spans([Span(1, 1, 2), Span(1, 5, 6)], 1, 9)
    assert not view.contains(1, 3, 9)
    for method in (view.before, view.since, view.after):
        with pytest.raises(LookupError):
            method(1, 3, 9)
    with pytest.raises(LookupError):
        view.locate(3, 9)


def test_moved_view_names_the_new_log() -> None:
    view = View(((1, 1, 5), (2, 6, None)))
    assert view.with_log_moved(1, 9).ranges == ((9, 1, 5), (2, 6, None))


@given(span_lists(), st.integers(-3, 20), st.integers(-3, 25))
def test_slice_is_that_of_a_list(spans: list[Span], start: int, stop: int) -> None:
    everything = messages_of(spans)
    assert messages_of(slice_spans(spans, start, stop)) == everything[max(start, 0) : max(stop, 0)]
    for index, (_, seq) in enumerate(everything):
        assert index_of(spans, seq) == index
    with pytest.raises(LookupError):
        index_of(spans, 1000)
