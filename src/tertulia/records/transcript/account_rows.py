"""A history together with what it was made from, and the rows that an account of it lists."""

from __future__ import annotations

from typing import Any, NamedTuple

from tertulia.core.history.account import RowFate
from tertulia.core.history.repair import Block
from tertulia.core.history.view import newest_spans, oldest_spans
from tertulia.core.history.window import CountTokens, FittedHistory
from tertulia.core.message import Message
from tertulia.records import session_rows
from tertulia.records.transcript.read import read_messages, spans_upto
from tertulia.storage.base import Transaction


class MadeHistory(NamedTuple):
    """A history, and the blocks that it was made from."""

    candidates: list[Block]
    window: FittedHistory
    messages: list[dict[str, Any]]
    count_tokens: CountTokens

    @property
    def tokens(self) -> int:
        """About how many tokens the history has."""
        window = self.window
        return sum(self.count_tokens(block, window.result_limit) for block in window.blocks)


class AccountRow(NamedTuple):
    """A row of the transcript, and what became of it."""

    message: Message
    fate: RowFate


class HistoryAccount(NamedTuple):
    """A history, and the fate of each of the newest rows, oldest first.

    `before` is how many older rows there are, `messages` the history, `tokens` about how many it
    has, and `summary` the summary at its beginning.
    """

    rows: tuple[AccountRow, ...]
    before: int
    messages: tuple[dict[str, Any], ...]
    tokens: int
    summary: str | None


class AccountRows(NamedTuple):
    """Rows, each with whether a summary stands for it, and how many older ones there are."""

    items: list[tuple[Message, bool]]
    before: int


def read_account_rows(
    tx: Transaction, session_id: str, upto: int | None, limit: int
) -> AccountRows:
    """Return the newest visible rows, up to a message; raise `NotFound` if it is not visible."""
    current = session_rows.current_view(tx, session_id)
    fresh, is_summed_up = spans_upto(current, upto)
    fresh_count = sum(span.size for span in fresh)
    spans = fresh
    if is_summed_up and current.after_log is not None and current.after_seq is not None:
        visible = current.view.spans(current.last_seq)
        covered = sum(span.size for span in visible) - sum(
            span.size for span in current.spans_after_summary()
        )
        spans = [*oldest_spans(visible, covered), *fresh]
    total = sum(span.size for span in spans)
    messages = read_messages(tx, newest_spans(spans, limit))
    old_count = len(messages) - fresh_count
    return AccountRows(
        [(message, index < old_count) for index, message in enumerate(messages)],
        total - len(messages),
    )
