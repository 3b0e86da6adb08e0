from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.scene import Scene
from tests.processes.scene import scene as opened


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """Programs of a store in SQLite; what is about the records runs on both databases."""
    with opened(str(tmp_path / "talk.db"), tmp_path) as found:
        yield found
