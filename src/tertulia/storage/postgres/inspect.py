"""Inspecting a PostgreSQL store without changing it."""

from __future__ import annotations

from typing import Any

import psycopg

from tertulia.storage import migration, statements
from tertulia.storage.inspection import Inspection, pending_migrations, with_counts
from tertulia.storage.postgres import migrate
from tertulia.storage.postgres.errors import translate_errors


def inspect_store(dsn: str, name: str) -> Inspection:
    """Inspect the store in a database; in an empty database no migration is applied.

    `name` is the address without its password, for error messages.
    """
    try:
        with psycopg.connect(dsn, connect_timeout=10) as connection:
            connection.read_only = True
            return _inspect(connection, name)
    except psycopg.Error as problem:
        raise translate_errors(problem, name) from problem


def _inspect(connection: psycopg.Connection[Any], name: str) -> Inspection:
    migrate.refuse_old_server(connection, name)
    applied = migrate.applied_migrations(connection)
    migration.refuse_newer(applied, migrate.DIALECT, name)
    inspection = Inspection(
        applied,
        pending_migrations(applied, migrate.DIALECT),
        server=str(connection.info.parameter_status("server_version")),
        size=_first_row(connection, "select pg_database_size(current_database())")[0],
    )
    if inspection.pending:
        return inspection
    sql = statements.load(migrate.DIALECT)
    return with_counts(inspection, lambda statement: _first_row(connection, sql[statement]))


def _first_row(connection: psycopg.Connection[Any], query: str) -> Any:
    return connection.execute(query).fetchone()
