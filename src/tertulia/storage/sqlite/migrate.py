"""Migrate a SQLite store to the schema of this program: numbered scripts, each once, locked."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import apsw

from tertulia.storage import migration

DIALECT = "sqlite"
APPLICATION_ID = 0x74727475  # "trtu"


def applied_migrations(connection: apsw.Connection) -> list[str]:
    """Return the names of the migrations that were applied to the store, in order."""
    tables = connection.execute("select 1 from sqlite_schema where name = 'migrations'").fetchall()
    if not tables:
        return []
    return [name for (name,) in connection.execute("select name from migrations order by name")]


def apply_migrations(
    connection: apsw.Connection, path: str, wait: Callable[[int], bool] = lambda attempts: False
) -> list[str]:
    """Apply the missing migrations and return their names.

    Of several processes that start at once, exactly one applies them. `wait` is called with the
    number of earlier attempts while another process does: it pauses, and returns whether to go on
    waiting.
    """
    if not _begin(connection, migration.names(DIALECT), wait):
        return []
    try:
        applied = applied_migrations(connection)
        migration.refuse_newer(applied, DIALECT, path)
        if not applied:
            _create(connection)
        missing = migration.apply_missing(connection.execute, DIALECT, applied, placeholder="?")
        connection.execute("commit")
    except BaseException:
        if connection.in_transaction:
            connection.execute("rollback")
        raise
    return missing


def _begin(connection: apsw.Connection, ours: list[str], wait: Callable[[int], bool]) -> bool:
    """Begin a write transaction; return False if all migrations of this program are applied.

    A process that had to wait usually finds that the other one has applied them.
    """
    for attempts in itertools.count():
        try:
            if applied_migrations(connection) == ours:
                return False
            connection.execute("begin immediate")
        except apsw.BusyError:
            if not wait(attempts):
                raise
        else:
            break
    return True


def _create(connection: apsw.Connection) -> None:
    connection.execute(f"pragma application_id = {APPLICATION_ID}")
    connection.execute(
        "create table migrations (name text primary key, applied_at text not null)"
        " strict, without rowid"
    )
