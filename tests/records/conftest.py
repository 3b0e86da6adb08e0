"""Stores for the tests of records; each must pass its checks when its test is over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tertulia
from tertulia import Settings, Store
from tertulia.testing import FakeClock, Handles
from tests.records.store_inspection import FAST, faults_of, without_index


@pytest.fixture
def handles(where: str, tmp_path: Path) -> Iterator[Handles]:
    """Handles on one database, of each kind; every `open` makes another one."""

    def connect(place: Path, settings: Settings, clock: FakeClock) -> Store:
        return without_index(tertulia.open(where, settings=settings, clock=clock))

    handles = Handles(tmp_path, connect, FAST)
    yield handles
    store = handles.open()
    assert store.check() == []
    for session in store.sessions.find(limit=1000).items:
        assert faults_of(store.transcript(session.id).history()) == []
    handles.close()


@pytest.fixture
def store(handles: Handles) -> Store:
    return handles.open()


@pytest.fixture
def other(handles: Handles, store: Store) -> Store:
    """Another handle on the same database, in the same process."""
    return handles.open()


@pytest.fixture
def clock(handles: Handles) -> FakeClock:
    return handles.clock
