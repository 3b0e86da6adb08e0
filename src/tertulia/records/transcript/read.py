"""Reading messages: whole spans, bodies only, and as many as a history can need."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import dropwhile
from typing import Any, NamedTuple

from tertulia.core.history.content import USER_PARTS
from tertulia.core.history.plain import find_plain_history
from tertulia.core.history.repair import HIDDEN_KINDS, HISTORY_ROLES
from tertulia.core.history.tokens import MAX_CHARACTERS_PER_TOKEN, PER_IMAGE
from tertulia.core.history.view import Span, index_of, newest_spans, slice_spans
from tertulia.core.history.window import MIN_RESULT, HistoryBudget
from tertulia.core.message import TOOL, USER, Message, blob_of_file, from_json, text_of
from tertulia.errors import NotFound
from tertulia.records import session_rows
from tertulia.storage import rows
from tertulia.storage.base import Row, Transaction
from tertulia.storage.rows import CurrentView

# A budget of tokens is filled by a few dozen messages or by hundreds; the size of the first ones
# tells which.
_FIRST_READ = 32
# More messages than the budget takes, so that a cut is noticed; results at the front may have lost
# their calls.
_SPARE = 4
# The most messages that a history reads to get past rows that are not shown.
_MOST_READ = 10_000


class RecentMessages(NamedTuple):
    """The material of a history: the current summary, and the newest messages."""

    summary: Message | None
    messages: list[Message]
    is_whole: bool


class ReadAhead(NamedTuple):
    """A view, and the newest rows of its log, read before it was known which ones it shows.

    So a history goes to the server once for both.
    """

    current: CurrentView
    first: int  # the sequence number of the first row
    rows: list[Row]

    def rows_of(self, span: Span) -> list[Row] | None:
        """Return the rows of a span, or None if they were not read."""
        if span.log != self.current.ref or span.first < self.first:
            return None
        return [row for row in self.rows if span.first <= row[1] <= span.last]


def read_ahead(tx: Transaction, session_id: str, budget: HistoryBudget) -> ReadAhead:
    """Return what a history needs if its view ends with the newest messages.

    Raise `NotFound` if there is no such session.
    """
    count = min(_first_count(budget), _MOST_READ)
    views, columns = tx.together(
        [
            ("transcript_view", {"id": session_id}),
            ("messages_newest", {"id": session_id, "count": count}),
        ]
    )
    if not views:
        raise session_rows.session_not_found(session_id)
    current = CurrentView.from_row(views[0])
    return ReadAhead(current, max(1, current.last_seq - count + 1), columns)


def read_messages(
    tx: Transaction, spans: Iterable[Span], ahead: ReadAhead | None = None
) -> list[Message]:
    """Return every message of the spans, oldest first."""
    messages: list[Message] = []
    for span in spans:
        columns = None if ahead is None else ahead.rows_of(span)
        if columns is None:
            params = {"session": span.log, "first": span.first, "last": span.last}
            columns = tx.all("messages_of", params)
        messages += _to_messages(columns, tx)
    return messages


def read_bodies(tx: Transaction, spans: Iterable[Span]) -> list[dict[str, Any]]:
    """Return only the bodies of the messages, which takes half the time."""
    bodies: list[dict[str, Any]] = []
    for log, first, last in spans:
        params = {"session": log, "first": first, "last": last}
        bodies += [
            rows.parse_body(body) if away is None else rows.load_body(body, away, tx)
            for body, away in tx.all("bodies_of", params)
        ]
    return bodies


def read_files(tx: Transaction, hashes: Iterable[str]) -> dict[str, bytes]:
    """Return the bytes of files by their hash, without those that are deleted."""
    files = {hash_: tx.one("blob_data", {"hash": blob_of_file(hash_)}) for hash_ in hashes}
    return {hash_: bytes(row[0]) for hash_, row in files.items() if row is not None}


def read_plain_history(
    tx: Transaction,
    current: CurrentView,
    budget: HistoryBudget,
    ahead: ReadAhead | None = None,
    *,
    head: Callable[[int], str] | None = None,
) -> list[dict[str, Any]] | None:
    """Return the history in the OpenAI form if it is legal as it is stored, else None.

    `head` is that of `find_plain_history`.
    """
    spans = current.spans_after_summary()
    newest = newest_spans(spans, budget.messages + _SPARE)
    if current.summary_seq is not None or len(newest) != 1:
        return None
    ((log, first, last),) = newest
    rows_ahead = None if ahead is None else ahead.rows_of(newest[0])
    if rows_ahead is None:
        columns = tx.all("plain_messages_of", {"session": log, "first": first, "last": last})
    else:
        columns = [
            (turn, role, at, body)
            for _, _, turn, role, kind, at, author, body, away in rows_ahead
            if kind is None and author is None and away is None
        ]
    if len(columns) != newest[0].size:
        return None
    return find_plain_history(columns, first, budget, whole=newest == spans, head=head)


def read_summary(tx: Transaction, current: CurrentView) -> Message | None:
    """Return the summary that precedes the visible messages, or None."""
    if current.summary_seq is None:
        return None
    params = {"session": current.ref, "first": current.summary_seq, "last": current.summary_seq}
    return rows.message_from_row(tx.all("messages_of", params)[0], tx)


def read_recent(
    tx: Transaction,
    current: CurrentView,
    budget: HistoryBudget,
    upto: int | None = None,
    ahead: ReadAhead | None = None,
) -> RecentMessages:
    """Return as many of the newest messages as a history can need; with `upto` up to that one."""
    older, is_summed_up = spans_upto(current, upto)
    messages: list[Message] = []
    count = _first_count(budget)
    while older and count:
        newest, older = _split(older, count)
        messages = read_messages(tx, newest, ahead) + messages
        count = _count_missing(messages, budget) if older and len(messages) < _MOST_READ else 0
    if older and not _has_user_message(messages):
        # A result whose call was not read must not become the result of another call.
        messages = _last_user_message(tx, older) + list(dropwhile(_is_result, messages))
    summary = read_summary(tx, current) if is_summed_up else None
    return RecentMessages(summary, messages, is_whole=not older)


def _first_count(budget: HistoryBudget) -> int:
    """Return how many messages to read at first."""
    return budget.messages + _SPARE if budget.tokens is None else _FIRST_READ


def spans_upto(current: CurrentView, upto: int | None) -> tuple[list[Span], bool]:
    """Return the spans that no summary covers, up to a message, and whether the summary applies.

    It does not apply if the message is before the last message that it covers. Raise `NotFound` if
    the message is not visible.
    """
    fresh = current.spans_after_summary()
    if upto is None:
        return fresh, True
    spans = current.view.spans(current.last_seq)
    try:
        index = index_of(spans, upto)
    except LookupError:
        raise NotFound(
            f"Message {upto} is not visible in this transcript.", hint="Give another one."
        ) from None
    covered = sum(span.size for span in spans) - sum(span.size for span in fresh)
    if index < covered:
        return slice_spans(spans, 0, index + 1), False
    return slice_spans(spans, covered, index + 1), True


def _to_messages(columns: list[Row], tx: Transaction) -> list[Message]:
    """Decode many rows; `rows.message_from_row` for each would take as long as reading them."""
    try:
        return [
            Message(
                log, seq, turn, role, kind, at, author,
                from_json(body) if away is None else rows.load_body(body, away, tx),
            )
            for log, seq, turn, role, kind, at, author, body, away in columns
        ]  # fmt: skip
    except (ValueError, TypeError) as problem:
        raise rows.corrupt_error("a message", problem) from problem


def _split(spans: list[Span], count: int) -> tuple[list[Span], list[Span]]:
    """Return the spans of the newest `count` messages, and the spans of the older ones."""
    newest = newest_spans(spans, count)
    older = spans[: len(spans) - len(newest)]
    log, first, _ = spans[len(older)]
    if newest[0].first > first:
        older.append(Span(log, first, newest[0].first - 1))
    return newest, older


def _count_missing(messages: list[Message], budget: HistoryBudget) -> int:
    """Return how many more messages to read; 0 if these surely exceed the budget."""
    visible = [
        message
        for message in dropwhile(_is_result, messages)
        if message.kind not in HIDDEN_KINDS and message.role in HISTORY_ROLES
    ]
    missing = budget.messages + 1 - len(visible)
    if budget.tokens is None or missing <= 0:
        return max(missing, 0)
    sizes = [_size(message) for message in visible]
    if not _has_user_message(messages):
        # In a turn that is too big by itself results are shortened, and then more of them fit.
        sizes = [min(size, MIN_RESULT) for size in sizes]
    size = sum(sizes)
    left = budget.tokens * MAX_CHARACTERS_PER_TOKEN - size
    # A little more than fits if the next ones are like these; bounded, so that a few short messages
    # do not cause a very long read.
    likely = left * len(messages) * 9 // (8 * size + 1) + 1
    return max(0, min(missing, likely, 8 * len(messages) + 8))


def _size(message: Message) -> int:
    """Return about how many characters a message has; a picture counts as many as its tokens."""
    content = message.body.get("content")
    if not isinstance(content, list) or message.role != USER:
        return len(text_of(message.body))
    media = [part for part in content if isinstance(part, dict) and part.get("type") in USER_PARTS]
    return len(text_of(message.body)) + len(media) * PER_IMAGE * MAX_CHARACTERS_PER_TOKEN


def _has_user_message(messages: Iterable[Message]) -> bool:
    return any(message.role == USER and message.kind not in HIDDEN_KINDS for message in messages)


def _is_result(message: Message) -> bool:
    return message.role == TOOL


def _last_user_message(tx: Transaction, spans: list[Span]) -> list[Message]:
    """Return the last message of a user in these spans, or an empty list."""
    for span in reversed(spans):
        params = {"session": span.log, "first": span.first, "last": span.last}
        row = tx.one("message_of_user", params)
        if row is not None:
            return [rows.message_from_row(row, tx)]
    return []


def read_turn_number(tx: Transaction, log: int, seq: int) -> int:
    """Return the number of the turn that a message belongs to; 0 if there is no such message."""
    row = tx.one("message_turn", {"session": log, "seq": seq})
    return 0 if row is None else int(row[0])
