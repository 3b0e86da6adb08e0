"""Imports: batches, progress, ids and titles in use, and which session becomes current."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tertulia
from tertulia import Settings, Source, StaleWrite, Store, Usage
from tertulia.core.message import draft
from tertulia.records.imports import (
    ImportBatch,
    ImportedMessage,
    ImportedSession,
    Imports,
    ImportSummary,
    MessageDigest,
)
from tertulia.records.usage import charge
from tertulia.testing import FakeClock

ANA = Source("telegram", "42", user_id="42")
MARCH = 1_772_600_000_000_000  # microseconds


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    settings = Settings(zone="UTC", durability="fast")
    with tertulia.open(tmp_path / "talk.db", settings=settings, clock=FakeClock()) as store:
        yield store
        assert store.check() == []


@pytest.fixture
def imports(store: Store) -> Imports:
    return Imports(store.context)


def session(name: str = "hermes:1", **fields: Any) -> ImportedSession:
    defaults: dict[str, Any] = {
        "name": name,
        "id": None,
        "key": tertulia.session_key(ANA),
        "agent": "main",
        "source": ANA,
        "person": "telegram:42",
        "display_name": "Ana",
        "created_at": MARCH,
    }
    return ImportedSession(**{**defaults, **fields})


def summary(**fields: Any) -> ImportSummary:
    defaults: dict[str, Any] = {
        "created_at": MARCH,
        "updated_at": MARCH + 10,
        "ended_at": None,
        "end_reason": None,
    }
    return ImportSummary(**{**defaults, **fields})


def messages(*texts: str) -> list[ImportedMessage]:
    roles = ("user", "assistant")
    return [
        ImportedMessage(draft({"role": roles[n % 2], "content": text}), MARCH + n, None)
        for n, text in enumerate(texts)
    ]


def whole(imported: ImportedSession, end: ImportSummary, *texts: str) -> ImportBatch:
    """Return the only batch of a session."""
    return ImportBatch(imported, True, 0, messages(*texts), "digest", end)


def contents(store: Store, session_id: str) -> list[Any]:
    return [message["content"] for message in store.transcript(session_id).load()]


def test_session_in_two_batches_becomes_current_with_the_last(
    store: Store, imports: Imports
) -> None:
    first = ImportBatch(session(), True, 0, messages("one", "two"), "d2", None)
    (session_id,) = imports.write([first])
    progress = imports.get_progress("hermes:1")
    assert progress is not None
    assert (progress.session_id, progress.stored, progress.digest) == (session_id, 2, "d2")
    assert not progress.is_complete
    assert store.sessions.current(tertulia.session_key(ANA)) is None
    imports.write([ImportBatch(session(), False, 2, messages("three"), "d3", summary())])
    progress = imports.get_progress("hermes:1")
    assert progress is not None
    assert (progress.stored, progress.is_complete, progress.has_new_messages) == (3, True, False)
    current = store.sessions.current(tertulia.session_key(ANA))
    assert current is not None
    assert current.id == session_id
    assert contents(store, session_id) == ["one", "two", "three"]


def test_batch_that_another_import_has_stored_is_refused(store: Store, imports: Imports) -> None:
    batch = ImportBatch(session(), True, 0, messages("one"), "d1", None)
    imports.write([batch])
    with pytest.raises(StaleWrite, match="Another import"):
        imports.write([batch])
    with pytest.raises(StaleWrite, match="Another import"):
        imports.write([ImportBatch(session(), False, 0, messages("one"), "d1", None)])
    assert store.sessions.count() == 1


def test_id_and_title_in_use_are_replaced(store: Store, imports: Imports) -> None:
    ended = summary(ended_at=MARCH + 10, end_reason="reset", title="Plans")
    first, second = imports.write(
        [
            whole(session("hermes:1", id="20260101_000000_abcdefab"), ended, "one"),
            whole(session("hermes:2", id="20260101_000000_abcdefab"), ended, "two"),
        ]
    )
    assert first == "20260101_000000_abcdefab" != second
    assert store.sessions.require(first).title == "Plans"
    assert store.sessions.require(second).title == "Plans (2)"


def test_current_session_of_this_store_stays_current(store: Store, imports: Imports) -> None:
    own = store.sessions.open(ANA)
    assert imports.get_blocking_session(own.key, MARCH + 10) == own.id
    (session_id,) = imports.write([whole(session(), summary(), "one")])
    assert store.sessions.require(session_id).end_reason == "imported"
    current = store.sessions.current(own.key)
    assert current is not None
    assert current.id == own.id


def test_newer_import_replaces_an_older_imported_session(store: Store, imports: Imports) -> None:
    (old,) = imports.write([whole(session("hermes:1"), summary(), "one")])
    key = tertulia.session_key(ANA)
    assert imports.get_blocking_session(key, MARCH + 20) is None
    assert imports.get_blocking_session(key, MARCH) == old
    (new,) = imports.write([whole(session("hermes:2"), summary(updated_at=MARCH + 20), "two")])
    current = store.sessions.current(key)
    assert current is not None
    assert current.id == new
    assert store.sessions.require(old).ended_at is not None


def test_derived_key_is_linked_to_the_imported_conversation(store: Store, imports: Imports) -> None:
    imported = session(key="agent:main:telegram:old", derived_key=tertulia.session_key(ANA))
    (session_id,) = imports.write([whole(imported, summary(), "one")])
    assert store.sessions.conversation(ANA) == "agent:main:telegram:old"
    current = store.sessions.current(store.sessions.conversation(ANA))
    assert current is not None
    assert current.id == session_id


def test_hidden_and_consolidated_messages_are_left_out(store: Store, imports: Imports) -> None:
    end = summary(hidden=((2, 3),), consolidated=2, summary="in short")
    (session_id,) = imports.write([whole(session(), end, "1", "2", "3", "4", "5", "6")])
    assert contents(store, session_id) == ["1", "4", "5", "6"]
    history = store.transcript(session_id).history()
    text = " ".join(str(message["content"]) for message in history)
    assert "in short" in text
    assert "4" not in text
    assert "5" in text


def test_charges_are_entered_and_side_charges_only_in_the_ledger(
    store: Store, imports: Imports
) -> None:
    end = summary(charges=(charge(Usage(5)),), side_charges=(charge(Usage(100)),))
    (session_id,) = imports.write([whole(session(), end, "one")])
    assert store.sessions.require(session_id).usage.input == 5
    assert store.usage.sum("person")["telegram:42"].input == 105


def test_digest_depends_on_the_order_of_messages() -> None:
    def digest(*texts: str) -> str:
        result = MessageDigest()
        for message in messages(*texts):
            result.add(message.draft)
        return str(result)

    assert digest("one", "two") == digest("one", "two")
    assert digest("one", "two") != digest("two", "one")
