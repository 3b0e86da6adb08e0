"""SQLite keeps every promise of a store, with either durability."""

from __future__ import annotations

from pathlib import Path

import pytest

import tertulia
from tertulia import Settings, Store
from tertulia.testing import FakeClock, StoreContract
from tests.storage.store_internals import sqlite_of


class _OnSqlite(StoreContract):
    def connect(self, place: Path, settings: Settings, clock: FakeClock) -> Store:
        return tertulia.open(place / "talk.db", settings=settings, clock=clock)


@pytest.mark.check
class TestSafe(_OnSqlite):
    settings = Settings(zone="UTC", durability="safe")

    def test_every_commit_is_synced(self, store: Store) -> None:
        assert synchronous(store) == 2  # FULL: every commit is on the disk when it returns


class TestFast(_OnSqlite):
    settings = Settings(zone="UTC", durability="fast")

    def test_only_checkpoints_are_synced(self, store: Store) -> None:
        assert synchronous(store) == 1  # NORMAL: only a checkpoint waits for the disk


def synchronous(store: Store) -> int:
    """Return the setting of the connection that commits."""
    return int(sqlite_of(store)._writer.pragma("synchronous"))


def test_no_two_promises_have_the_same_name() -> None:
    """Of two promises with the same name in the base classes, only one would run."""
    names = [
        name for part in StoreContract.__mro__ for name in vars(part) if name.startswith("test_")
    ]
    assert sorted(names) == sorted(set(names))
