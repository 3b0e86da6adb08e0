"""The databases that tests of the gateway run on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tertulia.records.queues import base as queues
from tests.servers.empty_stores import place_on


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.check)])
def where(request: pytest.FixtureRequest) -> Iterator[str]:
    """The place of a new store: SQLite in `make test`, and PostgreSQL in `make check`.

    The gateway calls a store as every program does, and the contract suite runs on both databases.
    """
    with place_on(request.param, request) as place:
        yield place


@pytest.fixture(autouse=True)
def _short_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Notice soon what becomes due by time alone, as each retry does: nobody notifies of it."""
    monkeypatch.setattr(queues, "_POLL_SECONDS", 0.1)
