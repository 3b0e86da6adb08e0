"""The view of a transcript: ranges over an append-only log.

A view is a short tuple of ranges, each of one session's log, in the order of reading. The last one
may have an open end: then it includes every message that is appended later, and an append writes
nothing but its message. Every change makes a new view and moves no message, so that its cost
depends on the number of earlier changes and not on the length of the conversation.

A sequence number is used once along a chain of forks: a fork's own log begins above everything it
inherited. So `(log, seq)` can become `(fork, seq)` when the original log is deleted.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import msgspec


class Span(NamedTuple):
    """The messages `first` to `last` of one log."""

    log: int
    first: int
    last: int

    @property
    def size(self) -> int:
        """Return the number of messages; 0 or less if the span is empty."""
        return self.last - self.first + 1


class View(msgspec.Struct, frozen=True):
    """Ranges `(log, first, last)` of a transcript; a `last` of None is an open end."""

    ranges: tuple[tuple[int, int, int | None], ...]

    @classmethod
    def whole(cls, log: int, first: int = 1) -> Self:
        """Return the view of everything a log contains and will contain."""
        return cls(((log, first, None),))

    def spans(self, last_seq: int) -> list[Span]:
        """Return the ranges that are not empty, with the open end closed at `last_seq`."""
        closed = (
            Span(log, first, last_seq if last is None else last) for log, first, last in self.ranges
        )
        return [span for span in closed if span.size > 0]

    def count(self, last_seq: int) -> int:
        """Return the number of visible messages."""
        return sum(span.size for span in self.spans(last_seq))

    def logs(self) -> set[int]:
        """Return the logs that the view reads from."""
        return {log for log, _, _ in self.ranges}

    def before(self, log: int, seq: int, last_seq: int) -> list[Span]:
        """Return the spans before a message; raise `LookupError` if it is not visible."""
        before: list[Span] = []
        for span in self.spans(last_seq):
            if span.log == log and span.first <= seq <= span.last:
                return [*before, *_spans_between(log, span.first, seq - 1)]
            before.append(span)
        raise LookupError(seq)

    def since(self, log: int, seq: int, last_seq: int) -> list[Span]:
        """Return the spans from a message on; raise `LookupError` if it is not visible."""
        after: list[Span] = []
        for span in reversed(self.spans(last_seq)):
            if span.log == log and span.first <= seq <= span.last:
                return [*_spans_between(log, seq, span.last), *reversed(after)]
            after.append(span)
        raise LookupError(seq)

    def after(self, log: int, seq: int, last_seq: int) -> list[Span]:
        """Return the spans after a message; raise `LookupError` if it is not visible."""
        first, *rest = self.since(log, seq, last_seq)
        return [*_spans_between(log, first.first + 1, first.last), *rest]

    def contains(self, log: int, seq: int, last_seq: int) -> bool:
        """Return whether a message is visible."""
        return any(
            span.log == log and span.first <= seq <= span.last for span in self.spans(last_seq)
        )

    def locate(self, seq: int, last_seq: int) -> int:
        """Return the log of a visible sequence number; raise `LookupError` if it is not visible."""
        for span in self.spans(last_seq):
            if span.first <= seq <= span.last:
                return span.log
        raise LookupError(seq)

    def with_log_moved(self, old: int, new: int) -> View:
        """Return this view after the messages of one log were copied to another."""
        return View(tuple((new if log == old else log, *rest) for log, *rest in self.ranges))  # type: ignore[misc]


def newest_spans(spans: list[Span], count: int) -> list[Span]:
    """Return the spans of the newest `count` messages."""
    newest: list[Span] = []
    for span in reversed(spans):
        if count <= 0:
            break
        newest.append(Span(span.log, max(span.first, span.last - count + 1), span.last))
        count -= span.size
    newest.reverse()
    return newest


def oldest_spans(spans: list[Span], count: int) -> list[Span]:
    """Return the spans of the oldest `count` messages."""
    oldest: list[Span] = []
    for span in spans:
        if count <= 0:
            break
        oldest.append(Span(span.log, span.first, min(span.last, span.first + count - 1)))
        count -= span.size
    return oldest


def index_of(spans: list[Span], seq: int) -> int:
    """Return how many messages stand before a message; raise `LookupError` if it is not there."""
    before = 0
    for span in spans:
        if span.first <= seq <= span.last:
            return before + seq - span.first
        before += span.size
    raise LookupError(seq)


def slice_spans(spans: list[Span], start: int, stop: int) -> list[Span]:
    """Return the spans of the messages with the indexes `start` to before `stop`, as of a list."""
    start = max(start, 0)
    total = sum(span.size for span in spans)
    return oldest_spans(newest_spans(spans, total - start), stop - start)


def view_of_spans(spans: list[Span], log: int, last_seq: int) -> View:
    """Return a view of `spans`, followed by everything in `log` after `last_seq`.

    Adjacent ranges of a log become one.
    """
    ranges: list[tuple[int, int, int | None]] = []
    for span in spans:
        if ranges and ranges[-1][0] == span.log and ranges[-1][2] == span.first - 1:
            ranges[-1] = (span.log, ranges[-1][1], span.last)
        else:
            ranges.append((span.log, span.first, span.last))
    if ranges and ranges[-1][0] == log and ranges[-1][2] == last_seq:
        ranges[-1] = (log, ranges[-1][1], None)
    else:
        ranges.append((log, last_seq + 1, None))
    return View(tuple(ranges))


def _spans_between(log: int, first: int, last: int) -> list[Span]:
    """Return the span of these messages, or an empty list if there is none."""
    return [Span(log, first, last)] if first <= last else []
