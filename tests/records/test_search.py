"""Search on SQLite. `tertulia.testing` has the promises that both databases keep."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tertulia
from tertulia import Settings, Source, Store, StoreError
from tertulia.core.text import search_terms
from tertulia.records import search

ANA = Source("telegram", "42", user_id="42")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    settings = Settings(zone="UTC", durability="fast")
    with tertulia.open(tmp_path / "talk.db", settings=settings) as store:
        store._indexer.stop()  # only the searches of a test index
        yield store
        assert store.check() == []


def write(store: Store, *texts: str) -> str:
    session = store.sessions.open(ANA)
    store.transcript(session.id).extend({"role": "user", "content": text} for text in texts)
    return session.id


def found_numbers(store: Store, query: str, **options: Any) -> list[int]:
    return sorted(hit.seq for hit in store.search(query, **options).items)


def test_words_phrases_and_prefixes_match(store: Store) -> None:
    write(store, "El café está aquí", "aquí está el faro", "Cafetera")
    assert found_numbers(store, "CAFE") == [1]
    assert found_numbers(store, "cafe*") == [1, 3]
    assert found_numbers(store, "esta aqui") == [1, 2]
    assert found_numbers(store, '"esta aqui"') == [1]
    assert found_numbers(store, "\0") == []


def test_search_indexes_only_a_bounded_number_of_messages(store: Store) -> None:
    bound = search.CATCH_UP_STEPS * search.STEP_MESSAGES
    write(store, *["lighthouse"] * (bound + 1))
    assert len(store.search("lighthouse", limit=200).items) == 200
    session_id = store.sessions.open(ANA).id
    ref = store.context.db.read(lambda tx: tx.one("session_by_id", {"id": session_id}))
    assert ref is not None
    assert store.context.db.read(lambda tx: search.last_indexed(tx, ref[0])) == bound
    store.settle()
    assert store.context.db.read(lambda tx: search.last_indexed(tx, ref[0])) == bound + 1


def test_search_works_while_the_index_cannot_be_updated(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write(store, "lighthouse")
    store.settle()
    write(store, "lighthouse again")

    def fail(*args: object, **options: object) -> bool:
        raise StoreError("disk full")

    monkeypatch.setattr(search.Search, "catch_up", fail)
    with caplog.at_level(logging.ERROR, logger="tertulia.search"):
        assert found_numbers(store, "lighthouse") == [1]
    assert [record.message for record in caplog.records] == [
        "search index update failed, searching the messages indexed so far"
    ]


def test_index_of_other_rules_is_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "talk.db"
    with tertulia.open(path) as store:
        write(store, "lighthouse")
        store.settle()
    monkeypatch.setattr(search_terms, "RULE_VERSION", search_terms.RULE_VERSION + 1)
    with tertulia.open(path) as store:
        assert found_numbers(store, "lighthouse") == [1]
        name = {"name": "search_rule"}
        row = store.context.db.read(lambda tx: tx.one("installation_get", name))
        assert row == (str(search_terms.RULE_VERSION),)


def test_search_in_a_closed_store_raises_and_logs_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with tertulia.open(tmp_path / "talk.db") as store:
        person = store.for_person(ANA)
    for find in (store.search, person.search):
        with pytest.raises(StoreError, match="closed"):
            find("hello")
    assert caplog.records == []
