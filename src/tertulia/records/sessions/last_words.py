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

# A turn ends with words, or with a call and its result after them.
_LOOK_AT: Final = 4
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
    places = {session_id: _newest_places(view) for session_id, view in views.items()}
    wanted = [place for each in places.values() for place in each]
    rows = tx.all("messages_at", {"places": to_json(wanted)}) if wanted else []
    by_place = {(row[0] << 32) + row[1]: row for row in rows}
    words: dict[str, LastWords] = {}
    for session_id, each in places.items():
        newest = (
            message_from_row(by_place[place], tx)
            for place in each
            if place in by_place and by_place[place][3] in _SPEAKERS
        )
        if (spoken := _first_spoken(newest)) is not None:
            words[session_id] = spoken
    return words


def _newest_places(view: CurrentView) -> list[int]:
    """Return the places of the newest visible messages, the newest first."""
    spans = newest_spans(view.view.spans(view.last_seq), _LOOK_AT)
    places = [(log << 32) + seq for log, first, last in spans for seq in range(first, last + 1)]
    return places[::-1]


def _first_spoken(messages: Iterable[Message]) -> LastWords | None:
    for message in messages:
        if text := text_of(message.body).strip():
            return LastWords(role=message.role, text=text[:_MAX_CHARACTERS], at=message.at)
    return None
