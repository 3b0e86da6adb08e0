"""A store to export from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tertulia import Store
from tests.transfer.filled_stores import opened


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with opened(tmp_path / "talk.db") as opened_store:
        opened_store._indexer.stop()  # exports read no search index
        yield opened_store
