"""A store with a clock that stands still, for the tests of the queues."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tertulia
from tertulia import Settings, Store
from tertulia.testing import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[Store]:
    """A SQLite store; `tertulia.testing` has the promises that both databases keep."""
    settings = Settings(zone="UTC", durability="fast", remember=True)
    with tertulia.open(tmp_path / "talk.db", settings=settings, clock=clock) as store:
        yield store
        assert store.check() == []
