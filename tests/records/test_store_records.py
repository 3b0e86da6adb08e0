"""The records of a store are built once and closed together."""

from __future__ import annotations

from pathlib import Path

import pytest

import tertulia
from tertulia import NotAStore, Settings, StoreError
from tertulia.records.store_records import StoreRecords
from tertulia.storage.base import Database
from tertulia.storage.connect import open_database
from tertulia.testing import FakeClock

SETTINGS = Settings(zone="UTC", durability="fast")


def test_records_share_one_context(tmp_path: Path) -> None:
    clock = FakeClock()
    records = StoreRecords(tmp_path / "talk.db", SETTINGS, clock)
    assert records.context.db is records.db
    assert records.context.clock.now() == clock.now()
    assert records.redactor is records.redactor
    assert records.context.redactor() is None
    records.close()
    with pytest.raises(StoreError):
        records.sessions.count()


def test_database_of_a_moved_store_is_closed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Database] = []

    def open_and_keep(where: Path, settings: Settings) -> Database:
        opened.append(open_database(where, settings))
        return opened[-1]

    with tertulia.open(tmp_path / "talk.db", settings=SETTINGS) as store:
        value = {"name": "moved_to", "value": "postgresql://elsewhere"}
        store.context.db.write(lambda tx: tx.run("installation_set", value))
    monkeypatch.setattr("tertulia.records.store_records.open_database", open_and_keep)
    with pytest.raises(NotAStore):
        StoreRecords(tmp_path / "talk.db", SETTINGS, None)
    assert opened[0].is_closed
