"""Brings a PostgreSQL store to the schema of this program, one of many programs at a time."""

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
# Whoever migrates holds this lock; the number is arbitrary but fixed.
_LOCK = 0x74727475


_HAS_ANY = """
select exists (
    select 1 from pg_class join pg_namespace on pg_namespace.oid = pg_class.relnamespace
    where relname = 'migrations' and nspname = any (current_schemas(false))
)
"""


def applied(connection: psycopg.Connection[Any]) -> list[str]:
    """The names of the migrations the store has had, in order."""
    # Asked of the catalogue itself: what the server keeps in mind of a name, also that there is
    # nothing of that name, may be older than the lock that was waited for.
    row = connection.execute(_HAS_ANY).fetchone()
    if row is None or not row[0]:
        return []
    return [name for (name,) in connection.execute("select name from migrations order by name")]


def bring_up_to_date(connection: psycopg.Connection[Any], where: str) -> list[str]:
    """Apply what is missing; exactly one of several programs that start at once does it."""
    refuse_old_server(connection, where)
    scripts = statements.migrations(DIALECT)
    names = [name for name, _ in scripts]
    if applied(connection) == names:
        return []
    with connection.transaction():
        connection.execute("select pg_advisory_xact_lock(%s)", (_LOCK,))
        done = applied(connection)
        refuse_newer(done, where)
        missing = [(name, script) for name, script in scripts if name not in done]
        if not done:
            connection.execute(
                "create table migrations (name text primary key, applied_at text not null)"
            )
        for name, script in missing:
            connection.execute(script)
            connection.execute(
                "insert into migrations (name, applied_at) values (%s, %s)",
                (name, datetime.now(UTC).isoformat(timespec="seconds")),
            )
        if not done:
            connection.execute(
                "insert into installation (name, value) values ('secret', %s), ('search_rule', %s)",
                (os.urandom(32).hex(), str(search_terms.RULE)),
            )
    return [name for name, _ in missing]


def refuse_newer(done: list[str], where: str) -> None:
    """Raise if the store has had migrations that this program does not know."""
    known = {name for name, _ in statements.migrations(DIALECT)}
    unknown = [name for name in done if name not in known]
    if unknown:
        raise SchemaMismatch(
            f"{where} was written by a newer Tertulia (it has {unknown[-1]}).",
            hint="Upgrade this program: pip install --upgrade tertulia.",
            where=where,
        )


def refuse_old_server(connection: psycopg.Connection[Any], where: str) -> None:
    """Raise if the server lacks what the store needs."""
    version = connection.info.server_version
    if version < OLDEST_SERVER:
        raise SchemaMismatch(
            f"{where} runs PostgreSQL {version // 10_000}; Tertulia needs 14 or newer.",
            hint="Upgrade the server, or keep the store in a SQLite file.",
            where=where,
        )
