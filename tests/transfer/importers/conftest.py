"""A store, and a folder of another system."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tertulia
from tertulia import Store
from tests.transfer.foreign_folders import SETTINGS


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with tertulia.open(tmp_path / "talk.db", settings=SETTINGS) as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "there" / "sessions"
    made.mkdir(parents=True)
    return made
