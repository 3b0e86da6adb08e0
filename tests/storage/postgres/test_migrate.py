"""Migrations of a PostgreSQL store."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tertulia.storage import statements
from tertulia.storage.base import Row
from tertulia.storage.postgres import migrate as postgres_migrate
from tests.servers.postgres import Server


@pytest.fixture(scope="module")
def server_database(postgres: Server) -> Iterator[psycopg.Connection[Row]]:
    address = postgres.database(postgres.template)
    with psycopg.connect(address, autocommit=True) as connection:
        # A plan for any values, not for those that are given below.
        connection.execute("set plan_cache_mode = force_generic_plan")
        yield connection
    postgres.drop(address)


def test_migrations_run_in_order_and_once(
    server_database: psycopg.Connection[Row],
) -> None:
    names = [name for name, _ in statements.migrations(postgres_migrate.DIALECT)]
    assert postgres_migrate.applied_migrations(server_database) == names
    assert postgres_migrate.apply_migrations(server_database, "here") == []
    assert postgres_migrate.applied_migrations(server_database) == names
