"""A store for each test of turns, which has to be sound when the test is over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tertulia
from tertulia import Settings, Store
from tertulia.testing import FakeClock, Handles
from tests.turns.scene import FAST, faults_of, without_index


@pytest.fixture
def stage(where: str, tmp_path: Path) -> Iterator[Handles]:
    """One database, of each kind; every `open` gives another handle on it."""

    def connect(place: Path, settings: Settings, clock: FakeClock) -> Store:
        return without_index(tertulia.open(where, settings=settings, clock=clock))

    stage = Handles(tmp_path, connect, FAST)
    yield stage
    store = stage.open()
    assert store.check() == []
    for session in store.sessions.find(limit=1000).items:
        assert faults_of(store.transcript(session.id).history()) == []
    stage.close()


@pytest.fixture
def store(stage: Handles) -> Store:
    return stage.open()


@pytest.fixture
def other(stage: Handles, store: Store) -> Store:
    """Another handle on the same database, in the same process."""
    return stage.open()


@pytest.fixture
def clock(stage: Handles) -> FakeClock:
    return stage.clock
