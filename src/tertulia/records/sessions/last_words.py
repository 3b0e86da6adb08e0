"""The last words of sessions, for lists of them: two statements for a whole page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

import msgspec

from tertulia.core.history.view import newest_spans
from tertulia.core.message import ASSISTANT, USER, Message, text_of, to_json
from tertulia.storage.base import Transaction
from tertulia.storage.rows import CurrentView, message_from_row

# How many of the newest messages are read: after the last words may come a call and its result.
_NEWEST_MESSAGES: Final = 4
_MAX_CHARACTERS: Final = 200
_SPEAKERS: Final = (USER, ASSISTANT)


class LastWords(msgspec.Struct, frozen=True, kw_only=True):
    """The beginning of the newest message of a session that has a text, and whose it is."""

    role: str
    text: str
    at: datetime


def read_last_words(tx: Transaction, session_ids: Sequence[str]) -> dict[str, LastWords]:
    """Return the last words of each session that has any among its newest messages."""
    views = {
        row[0]: CurrentView.from_row(row[1:])
        for row in tx.all("transcript_views", {"ids": to_json(list(session_ids))})
    }
    positions = {session_id: _newest_positions(view) for session_id, view in views.items()}
    all_positions = [position for newest in positions.values() for position in newest]
    rows = tx.all("messages_at", {"places": to_json(all_positions)}) if all_positions else []
    row_at = {(row[0] << 32) + row[1]: row for row in rows}
    last_words: dict[str, LastWords] = {}
    for session_id, newest in positions.items():
        messages = (
            message_from_row(row_at[position], tx)
            for position in newest
            if position in row_at and row_at[position][3] in _SPEAKERS
        )
        if (words := _find_words(messages)) is not None:
            last_words[session_id] = words
    return last_words


def _newest_positions(view: CurrentView) -> list[int]:
    """Return the positions of the newest visible messages in the log, the newest first.

    A position is one integer of session and sequence number: decision 0001.
    """
    spans = newest_spans(view.view.spans(view.last_seq), _NEWEST_MESSAGES)
    positions = [(log << 32) + seq for log, first, last in spans for seq in range(first, last + 1)]
    return positions[::-1]


def _find_words(messages: Iterable[Message]) -> LastWords | None:
    """Return the words of the first message that has a text, or None."""
    for message in messages:
        if text := text_of(message.body).strip():
            return LastWords(role=message.role, text=text[:_MAX_CHARACTERS], at=message.at)
    return None
