"""PostgreSQL keeps every promise of a store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import tertulia
from tertulia import Settings, Store
from tertulia.testing import FakeClock, Handles, StoreContract
from tertulia.testing.fixtures import dm, user_message
from tests.servers.postgres import Server


class TestPostgres(StoreContract):
    settings = Settings(zone="UTC")

    @pytest.fixture(autouse=True)
    def _database(self, postgres: Server) -> Iterator[None]:
        with postgres.empty_store() as self.address:
            yield

    def connect(self, place: Path, settings: Settings, clock: FakeClock) -> Store:
        return tertulia.open(self.address, settings=settings, clock=clock)

    def test_no_text_of_a_deleted_session_stays_on_disk(
        self, handles: Handles, store: Store
    ) -> None:
        """The files belong to the server; no table has a row of a deleted session."""
        session = store.sessions.open(dm("anna"))
        store.transcript(session.id).append(user_message("zwieback"))
        store.settle()
        store.sessions.delete(session.id)
        with psycopg.connect(self.address) as connection:
            for table in ("sessions", "messages", "words", "cards", "revisions", "events", "turns"):
                row = connection.execute(f"select count(*) from {table}").fetchone()
                assert row == (0,), table
