"""The id by which a person is known: what is asked of the store, and what is not."""

from __future__ import annotations

import asyncio

import pytest

from tertulia.errors import StoreUnavailable
from tertulia.platforms.base import RememberId
from tertulia.platforms.whatsapp import known_ids
from tertulia.platforms.whatsapp.known_ids import KnownIds


class StoredIds:
    """The ids in a store, and how often it was asked."""

    def __init__(self) -> None:
        self.ids: dict[str, str] = {}
        self.calls = 0

    async def remember(self, user_id: str, new_id: str) -> str:
        self.calls += 1
        return self.ids.setdefault(user_id, new_id)


def resolve(
    ids: KnownIds, user_id: str | None, number: str | None, remember_id: RememberId | None = None
) -> tuple[str, str | None]:
    return asyncio.run(ids.resolve(user_id, number, remember_id))


def test_first_id_stays() -> None:
    ids = KnownIds()
    assert resolve(ids, "ES.1", "346") == ("346", "346")
    assert resolve(ids, "ES.1", None) == ("346", "346")
    assert resolve(ids, "ES.2", None) == ("ES.2", None)
    assert resolve(ids, "ES.2", "347") == ("ES.2", None)
    assert resolve(ids, None, "348") == ("348", "348")
    with pytest.raises(ValueError, match="sender"):
        resolve(ids, None, None)


def test_store_knows_what_another_machine_has_seen() -> None:
    store = StoredIds()
    first, second = KnownIds(), KnownIds()
    assert resolve(first, "ES.1", "346", store.remember) == ("346", "346")
    assert resolve(second, "ES.1", None, store.remember) == ("346", "346")
    assert resolve(second, "ES.2", None, store.remember) == ("ES.2", None)
    assert resolve(first, "ES.2", "347", store.remember) == ("ES.2", None)


def test_store_is_asked_once_for_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_ids, "_MAX_REMEMBERED", 2)
    store, ids = StoredIds(), KnownIds()
    for _ in range(5):
        resolve(ids, "ES.1", "346", store.remember)
    assert store.calls == 1
    for number in range(3):
        resolve(ids, f"ES.{number + 2}", None, store.remember)
    resolve(ids, "ES.1", None, store.remember)  # not among the last two any more
    assert store.calls == 5


def test_id_that_cannot_be_stored_is_not_taken_for_stored() -> None:
    ids = KnownIds()

    async def fail(user_id: str, new_id: str) -> str:
        raise StoreUnavailable("The store is locked.", hint="Wait.")

    with pytest.raises(StoreUnavailable):
        resolve(ids, "ES.1", "346", fail)
    store = StoredIds()
    store.ids["ES.1"] = "347"
    assert resolve(ids, "ES.1", "346", store.remember) == ("347", "347")
