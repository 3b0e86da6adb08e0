"""The homeserver of the tests of Matrix: one for all of them, with accounts of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.synapse import Synapse, shared_synapse


@pytest.fixture(scope="session")
def synapse() -> Iterator[Synapse]:
    """A real homeserver that all workers of this session share."""
    with shared_synapse() as server:
        yield server
