"""Revisions: every change of the visible messages makes one, and the log stays as it is."""

from __future__ import annotations

from typing import Any

import pytest

from tertulia import NotFound, Session, Store
from tertulia.core.history.view import Span
from tertulia.records import session_rows
from tertulia.records.transcript.revisions import since_turn_of, turn_starts, without
from tertulia.records.transcript.transcript import Transcript
from tests.records.store_inspection import ANA, contents


def turn(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}, {"role": "assistant", "content": f"re {text}"}]


@pytest.fixture
def session(store: Store) -> Session:
    session = store.sessions.open(ANA)
    store.transcript(session.id).extend([*turn("a"), *turn("b"), *turn("c")])
    return session


@pytest.fixture
def transcript(store: Store, session: Session) -> Transcript:
    return store.transcript(session.id)


def visible(transcript: Transcript) -> list[str]:
    return [message["content"] for message in transcript.load()]


def test_every_change_is_listed_with_its_base(transcript: Transcript) -> None:
    transcript.undo()
    transcript.clear()
    transcript.restore(1)
    revisions = transcript.revisions()
    assert [(item.number, item.made_by, item.made_from) for item in revisions] == [
        (1, "start", None),
        (2, "undo", 1),
        (3, "clear", 2),
        (4, "restore", 3),
    ]
    assert [item.messages for item in revisions] == [6, 4, 0, 6]
    assert [item.is_current for item in revisions] == [False, False, False, True]


def test_a_change_moves_no_message(store: Store, session: Session, transcript: Transcript) -> None:
    stored = contents(store, session)
    transcript.undo(2)
    transcript.keep_recent(1)
    transcript.clear()
    assert contents(store, session) == stored


def test_redo_is_refused_after_a_new_message(transcript: Transcript) -> None:
    transcript.undo()
    assert transcript.redo()
    assert visible(transcript)[-1] == "re c"
    assert not transcript.redo()
    transcript.undo()
    transcript.append({"role": "user", "content": "d"})
    assert not transcript.redo()
    assert visible(transcript) == ["a", "re a", "b", "re b", "d"]


def test_unknown_revision_and_message_are_not_found(transcript: Transcript) -> None:
    for call in (transcript.at, transcript.restore, transcript.remove):
        with pytest.raises(NotFound):
            call(99)


def test_turn_starts_are_newest_first(store: Store, session: Session) -> None:
    def starts(count: int) -> list[int]:
        current = store.context.db.read(lambda tx: session_rows.current_view(tx, session.id))
        found = store.context.db.read(lambda tx: turn_starts(tx, current, count))
        return [seq for _, seq in found]

    assert starts(2) == [5, 3]
    assert starts(99) == [5, 3, 1]


def test_since_turn_of_goes_back_to_the_user_message(store: Store, session: Session) -> None:
    db = store.context.db
    current = db.read(lambda tx: session_rows.current_view(tx, session.id))
    spans = db.read(lambda tx: since_turn_of(tx, current, current.ref, 4))
    assert spans == [Span(current.ref, 3, 6)]


def test_without_splits_the_span_around_a_message() -> None:
    spans = [Span(1, 1, 5), Span(2, 3, 3)]
    assert without(spans, 1, 3) == [Span(1, 1, 2), Span(1, 4, 5), Span(2, 3, 3)]
    assert without(spans, 1, 1) == [Span(1, 2, 5), Span(2, 3, 3)]
    assert without(spans, 2, 3) == [Span(1, 1, 5)]
