"""Inspecting a PostgreSQL store changes nothing."""

from __future__ import annotations

import psycopg
import pytest

import tertulia
from tertulia import Settings, Source, StoreUnavailable
from tertulia.errors import SchemaMismatch
from tertulia.storage import statements
from tertulia.storage.postgres import inspect
from tests.servers.postgres import Server


def test_empty_database_has_no_migrations_and_stays_empty(postgres: Server) -> None:
    address = postgres.database()
    inspection = inspect.inspect_store(address, "a name")
    assert inspection.applied == []
    assert inspection.pending == [name for name, _ in statements.migrations("postgres")]
    assert inspection.messages is None
    with psycopg.connect(address) as connection:
        tables = connection.execute(
            "select count(*) from information_schema.tables where table_schema = 'public'"
        ).fetchone()
    assert tables == (0,)
    postgres.drop(address)


def test_current_store_is_counted(address: str) -> None:
    with tertulia.open(address, settings=Settings(zone="UTC")) as store:
        session = store.sessions.open(Source("telegram", "1"))
        store.transcript(session.id).append({"role": "user", "content": "hello"})
    inspection = inspect.inspect_store(address, "a name")
    assert (inspection.pending, inspection.current, inspection.messages) == ([], 1, 1)
    assert inspection.size is not None
    assert inspection.size > 1_000_000
    assert inspection.server is not None
    assert int(inspection.server.split(".")[0].split()[0]) >= 14


def test_newer_store_is_refused(address: str) -> None:
    with psycopg.connect(address) as connection:
        connection.execute("insert into migrations values ('9999_the_future', '2030-01-01')")
    with pytest.raises(SchemaMismatch, match="9999_the_future"):
        inspect.inspect_store(address, "a name")


def test_missing_database_is_unavailable(postgres: Server) -> None:
    with pytest.raises(StoreUnavailable, match="a name"):
        inspect.inspect_store(postgres.address("there_is_none"), "a name")
