"""A store in a file, with any number of handles on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tertulia
from tertulia import Settings, Store
from tertulia.testing import FakeClock, Handles
from tests.storage.sqlite.store_files import SETTINGS


def _connect(folder: Path, settings: Settings, clock: FakeClock) -> Store:
    return tertulia.open(folder / "talk.db", settings=settings, clock=clock)


@pytest.fixture
def handles(tmp_path: Path) -> Iterator[Handles]:
    """Handles on a store in `talk.db`; all are closed after the test."""
    handles = Handles(tmp_path, _connect, SETTINGS)
    yield handles
    handles.close()
