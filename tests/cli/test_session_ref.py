"""The session that a person means: by id, part of it, title, or `last`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tertulia
from tertulia import Settings, Source
from tertulia.cli.session_ref import resolve
from tertulia.errors import NotFound
from tertulia.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with tertulia.open(tmp_path / "talk.db", settings=Settings(zone="UTC")) as store:
        yield store


def begin(store: Store, chat: str, title: str | None = None) -> str:
    session = store.sessions.open(Source("telegram", chat, user_id=chat))
    if title is not None:
        store.sessions.rename(session.id, title)
    return session.id


def test_id_and_its_parts(store: Store) -> None:
    session_id = begin(store, "1")
    for ref in (session_id, session_id[:-1], session_id[-8:], session_id[-8:-3]):
        assert resolve(store, ref).id == session_id


@pytest.mark.parametrize("ref", ["", "  "])
def test_empty_text_names_no_session(store: Store, ref: str) -> None:
    begin(store, "1", "The garden  of Ana")
    with pytest.raises(NotFound):
        resolve(store, ref)


def test_title_and_a_part_of_it(store: Store) -> None:
    garden, _ = begin(store, "1", "花园 🌻 Garden"), begin(store, "2", "Invoice")
    for ref in ("花园 🌻 garden", "花园", "ARDEN"):
        assert resolve(store, ref).id == garden


def test_whole_title_is_preferred(store: Store) -> None:
    begin(store, "1", "Garden in May")
    whole = begin(store, "2", "Garden")
    assert resolve(store, "garden").id == whole


def test_last_has_the_newest_activity(store: Store) -> None:
    begin(store, "1")
    newest = begin(store, "2")
    assert resolve(store, "last").id == newest


def test_ambiguous_part_names_the_candidates(store: Store) -> None:
    ids = begin(store, "1", "Garden A"), begin(store, "2", "Garden B")
    with pytest.raises(NotFound, match="fits several sessions") as refusal:
        resolve(store, "Garden")
    assert all(session_id in refusal.value.message for session_id in ids)


@pytest.mark.parametrize("ref", ["nobody", "", "abc", "last"])
def test_nothing_fits(store: Store, ref: str) -> None:
    with pytest.raises(NotFound):
        resolve(store, ref)
