"""A store for each test of an SDK, which has to be sound and free when the test is over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tertulia
from tertulia import Settings, Store
from tertulia.integrations import run_lease
from tests.records.store_inspection import faults_of

FAST = Settings(zone="UTC", durability="fast")


@pytest.fixture
def where(tmp_path: Path) -> Path:
    return tmp_path / "talk.db"


@pytest.fixture
def store(where: Path) -> Iterator[Store]:
    with tertulia.open(where, settings=FAST) as store:
        yield store
        assert store.check() == []
        for session in store.sessions.find(limit=1000).items:
            assert faults_of(store.transcript(session.id).history()) == []
    run_lease._held_turns.clear()
