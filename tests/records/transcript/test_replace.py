"""Replacing a transcript stores only the difference."""

from __future__ import annotations

from typing import Any

import pytest

from tertulia import ConfigError, NotFound, Session, Store
from tertulia.core.message import COMMAND, DELIVERY
from tertulia.records.transcript import replace
from tests.records.store_inspection import ANA, contents


def message(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": text}


@pytest.fixture
def session(store: Store) -> Session:
    session = store.sessions.open(ANA)
    store.transcript(session.id).extend([message("a"), message("b", "assistant"), message("c")])
    return session


def test_equal_messages_at_both_ends_become_indexes() -> None:
    a, b, c, d = (message(text) for text in "abcd")
    assert replace.align([a, b, c], [a, b, c, d]) == [0, 1, 2, d]
    assert replace.align([a, b, c], [a, d, c]) == [0, d, 2]
    assert replace.align([a, a], [a]) == [0]
    assert replace.align([], [a]) == [a]


def test_a_longer_transcript_is_appended_without_a_revision(store: Store, session: Session) -> None:
    transcript = store.transcript(session.id)
    replace.rewrite(store.context, session.id, [*transcript.load(), message("d", "assistant")])
    assert contents(store, session) == ["a", "b", "c", "d"]
    assert len(transcript.revisions()) == 1


def test_a_change_in_the_middle_stores_only_the_new_message(store: Store, session: Session) -> None:
    transcript = store.transcript(session.id)
    new = [message("a"), message("x", "assistant"), message("c")]
    replace.rewrite(store.context, session.id, new)
    assert transcript.load() == new
    assert contents(store, session) == ["a", "b", "c", "x"]
    assert [item.made_by for item in transcript.revisions()] == ["start", "rewrite"]
    replace.rewrite(store.context, session.id, new)
    assert len(transcript.revisions()) == 2


def test_an_unknown_id_becomes_an_ended_session(store: Store) -> None:
    replace.append(store.context, "20260101_imported", message("hello"))
    session = store.sessions.require("20260101_imported")
    assert session.end_reason == "adopted"
    assert store.transcript(session.id).load() == [message("hello")]
    with pytest.raises(NotFound):
        replace.append(store.context, "", message("hello"))


def test_marks_of_other_systems_become_kinds() -> None:
    assert replace.kind_of({"role": "user", "_command": True}) == COMMAND
    assert replace.kind_of({"role": "assistant", "_channel_delivery": True}) == DELIVERY
    assert replace.kind_of({"role": "user", "_command": False}) is None


def test_a_note_is_stored_once(store: Store, other: Store) -> None:
    assert not replace.is_noted(store.context, "imported a/folder")
    replace.note(store.context, "imported a/folder")
    assert replace.is_noted(other.context, "imported a/folder")


@pytest.mark.parametrize("tokens", [-1, 1.5, True, 2**53])
def test_last_prompt_must_be_a_count(store: Store, session: Session, tokens: Any) -> None:
    with pytest.raises(ConfigError):
        replace.set_last_prompt(store.context, session.id, tokens)
    replace.set_last_prompt(store.context, session.id, 7)
    assert store.sessions.require(session.id).last_prompt_tokens == 7
