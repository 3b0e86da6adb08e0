"""Migrate a PostgreSQL store to the schema of this program, one process at a time."""

from __future__ import annotations

from typing import Any

import psycopg

from tertulia.errors import SchemaMismatch
from tertulia.storage import migration

DIALECT = "postgres"
OLDEST_SERVER = 140_000
# The id of the advisory lock held during a migration; arbitrary but fixed.
_LOCK_ID = 0x74727475

_HAS_MIGRATIONS_TABLE = """
select exists (
    select 1 from pg_class join pg_namespace on pg_namespace.oid = pg_class.relnamespace
    where relname = 'migrations' and nspname = any (current_schemas(false))
)
"""


def applied_migrations(connection: psycopg.Connection[Any]) -> list[str]:
    """Return the names of the migrations that were applied to the store, in order."""
    # The query reads the catalogue itself: the server's cached answer for a table name, also that
    # there is no such table, may be older than the lock that was waited for.
    row = connection.execute(_HAS_MIGRATIONS_TABLE).fetchone()
    if row is None or not row[0]:
        return []
    return [name for (name,) in connection.execute("select name from migrations order by name")]


def apply_migrations(connection: psycopg.Connection[Any], where: str) -> list[str]:
    """Apply the missing migrations and return their names.

    Of several processes that start at once, exactly one applies them.
    """
    refuse_old_server(connection, where)
    if applied_migrations(connection) == migration.names(DIALECT):
        return []
    with connection.transaction():
        connection.execute("select pg_advisory_xact_lock(%s)", (_LOCK_ID,))
        applied = applied_migrations(connection)
        migration.refuse_newer(applied, DIALECT, where)
        if not applied:
            connection.execute(
                "create table migrations (name text primary key, applied_at text not null)"
            )
        return migration.apply_missing(connection.execute, DIALECT, applied, placeholder="%s")


def refuse_old_server(connection: psycopg.Connection[Any], where: str) -> None:
    """Raise SchemaMismatch if the server is older than the oldest supported version."""
    version = connection.info.server_version
    if version < OLDEST_SERVER:
        raise SchemaMismatch(
            f"{where} runs PostgreSQL {version // 10_000}; Tertulia needs 14 or newer.",
            hint="Upgrade the server, or keep the store in a SQLite file.",
            where=where,
        )
