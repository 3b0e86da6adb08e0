"""Migrate a SQLite store to the schema of this program: numbered scripts, each once, locked."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from datetime import UTC, datetime

import apsw

from tertulia.core.text import search_terms
from tertulia.errors import SchemaMismatch
from tertulia.storage import statements

DIALECT = "sqlite"
APPLICATION_ID = 0x74727475  # "trtu"


def applied_migrations(connection: apsw.Connection) -> list[str]:
    """Return the names of the migrations that were applied to the store, in order."""
    tables = connection.execute("select 1 from sqlite_schema where name = 'migrations'").fetchall()
    if not tables:
        return []
    return [name for (name,) in connection.execute("select name from migrations order by name")]


def refuse_newer(connection: apsw.Connection, path: str) -> None:
    """Raise SchemaMismatch if the store has migrations that this program does not have."""
    ours = {name for name, _ in statements.migrations(DIALECT)}
    unknown = [name for name in applied_migrations(connection) if name not in ours]
    if unknown:
        raise SchemaMismatch(
            f"{path} was written by a newer Tertulia (it has {unknown[-1]}).",
            hint="Upgrade this program: pip install --upgrade tertulia. The file was not changed.",
            where=path,
        )


def apply_migrations(
    connection: apsw.Connection, path: str, wait: Callable[[int], bool] = lambda attempts: False
) -> list[str]:
    """Apply the missing migrations and return their names.

    Of several processes that start at once, exactly one applies them. `wait` is called with the
    number of earlier attempts while another process does: it pauses, and returns whether to go on
    waiting.
    """
    scripts = statements.migrations(DIALECT)
    if not _begin(connection, [name for name, _ in scripts], wait):
        return []
    try:
        refuse_newer(connection, path)
        applied = set(applied_migrations(connection))
        if not applied:
            _create(connection)
        missing = [(name, script) for name, script in scripts if name not in applied]
        for name, script in missing:
            connection.execute(script)
            connection.execute(
                "insert into migrations (name, applied_at) values (?, ?)",
                (name, datetime.now(UTC).isoformat(timespec="seconds")),
            )
        if not applied:
            # Redaction is keyed with this secret: a plain hash of a phone number can be guessed.
            connection.execute(
                "insert into installation (name, value) values ('secret', ?), ('search_rule', ?)",
                (os.urandom(32).hex(), str(search_terms.RULE_VERSION)),
            )
        connection.execute("commit")
    except BaseException:
        if connection.in_transaction:
            connection.execute("rollback")
        raise
    return [name for name, _ in missing]


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
