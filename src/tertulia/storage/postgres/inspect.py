"""What stands in a PostgreSQL store, looked at without changing it."""

from __future__ import annotations

from typing import Any

import psycopg

from tertulia.storage import statements
from tertulia.storage.postgres import migrate
from tertulia.storage.postgres.errors import translate_errors
from tertulia.storage.sqlite.inspect import (
    Inspection,
    counted,
    pending,
)


def inspect_store(dsn: str, name: str) -> Inspection:
    """Look at the store in a database; an empty database has had no migration."""
    try:
        with psycopg.connect(dsn, connect_timeout=10) as connection:
            connection.read_only = True
            return _look(connection, name)
    except psycopg.Error as problem:
        raise translate_errors(problem, name) from problem


def _look(connection: psycopg.Connection[Any], name: str) -> Inspection:
    migrate.refuse_old_server(connection, name)
    applied = migrate.applied(connection)
    migrate.refuse_newer(applied, name)
    found = Inspection(
        applied,
        pending(applied, migrate.DIALECT),
        server=str(connection.info.parameter_status("server_version")),
        size=_first(connection, "select pg_database_size(current_database())")[0],
    )
    if found.pending:
        return found
    sql = statements.load(migrate.DIALECT)
    return counted(found, lambda statement: _first(connection, sql[statement]))


def _first(connection: psycopg.Connection[Any], query: str) -> Any:
    return connection.execute(query).fetchone()
