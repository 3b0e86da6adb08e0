"""Migrate a PostgreSQL store to the schema of this program, one process at a time."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any

import psycopg

from tertulia.core.text import search_terms
from tertulia.errors import SchemaMismatch
from tertulia.storage import statements

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
    scripts = statements.migrations(DIALECT)
    names = [name for name, _ in scripts]
    if applied_migrations(connection) == names:
        return []
    with connection.transaction():
        connection.execute("select pg_advisory_xact_lock(%s)", (_LOCK_ID,))
        applied = applied_migrations(connection)
        refuse_newer(applied, where)
        missing = [(name, script) for name, script in scripts if name not in applied]
        if not applied:
            connection.execute(
                "create table migrations (name text primary key, applied_at text not null)"
            )
        for name, script in missing:
            connection.execute(script)
            connection.execute(
                "insert into migrations (name, applied_at) values (%s, %s)",
                (name, datetime.now(UTC).isoformat(timespec="seconds")),
            )
        if not applied:
            connection.execute(
                "insert into installation (name, value) values ('secret', %s), ('search_rule', %s)",
                (os.urandom(32).hex(), str(search_terms.RULE_VERSION)),
            )
    return [name for name, _ in missing]


def refuse_newer(applied: list[str], where: str) -> None:
    """Raise SchemaMismatch if the store has migrations that this program does not have."""
    ours = {name for name, _ in statements.migrations(DIALECT)}
    unknown = [name for name in applied if name not in ours]
    if unknown:
        raise SchemaMismatch(
            f"{where} was written by a newer Tertulia (it has {unknown[-1]}).",
            hint="Upgrade this program: pip install --upgrade tertulia.",
            where=where,
        )


def refuse_old_server(connection: psycopg.Connection[Any], where: str) -> None:
    """Raise SchemaMismatch if the server is older than the oldest supported version."""
    version = connection.info.server_version
    if version < OLDEST_SERVER:
        raise SchemaMismatch(
            f"{where} runs PostgreSQL {version // 10_000}; Tertulia needs 14 or newer.",
            hint="Upgrade the server, or keep the store in a SQLite file.",
            where=where,
        )
