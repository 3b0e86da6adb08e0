from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.process_fixtures import Conversation, open_conversation


@pytest.fixture
def conversation(tmp_path: Path) -> Iterator[Conversation]:
    """A conversation in a SQLite store; the contract tests of the records run on both databases."""
    with open_conversation(str(tmp_path / "talk.db"), tmp_path) as conversation:
        yield conversation
