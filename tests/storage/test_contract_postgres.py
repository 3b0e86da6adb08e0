"""PostgreSQL keeps every promise of a store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tertulia
from tertulia import Settings, Store
from tertulia.testing import FakeClock, StoreContract
from tests.servers.postgres import Server


class TestPostgres(StoreContract):
    settings = Settings(zone="UTC")

    @pytest.fixture(autouse=True)
    def _database(self, postgres: Server) -> Iterator[None]:
        self.address = postgres.database(postgres.template)
        yield
        postgres.drop(self.address)

    def connect(self, place: Path, settings: Settings, clock: FakeClock) -> Store:
        return tertulia.open(self.address, settings=settings, clock=clock)
