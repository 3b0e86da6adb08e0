"""Inspecting a SQLite store: nothing is created, migrated or locked."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from tertulia.errors import NotAStore
from tertulia.storage import migration, statements
from tertulia.storage.inspection import Inspection, pending_migrations, with_counts
from tertulia.storage.sqlite import migrate
from tertulia.storage.sqlite.errors import translate_errors


def inspect_store(path: str, *, for_damage: bool = False) -> Inspection:
    """Inspect the store in a file. With `for_damage`, read all of the file to look for damage.

    Raise NotAStore or SchemaMismatch if the file is not a store that this program can read.
    """
    with _read_only(path) as connection:
        return _inspect(connection, path, for_damage)


def applied_migrations(path: str) -> list[str]:
    """Return the migrations that were applied to the store in a file; [] if there is no file."""
    if not os.path.isfile(path):
        return []
    with _read_only(path) as connection:
        return migrate.applied_migrations(connection)


@contextmanager
def _read_only(path: str) -> Iterator[apsw.Connection]:
    try:
        connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
        try:
            yield connection
        finally:
            connection.close()
    except apsw.Error as problem:
        raise translate_errors(problem, path) from problem


def _inspect(connection: apsw.Connection, path: str, for_damage: bool) -> Inspection:
    if connection.pragma("application_id") != migrate.APPLICATION_ID:
        raise NotAStore(
            f"{path} is a SQLite database of another program.",
            hint="Name another file; this one was not changed.",
            where=path,
        )
    applied = migrate.applied_migrations(connection)
    migration.refuse_newer(applied, migrate.DIALECT, path)
    inspection = Inspection(
        applied,
        pending_migrations(applied, migrate.DIALECT),
        journal=str(connection.pragma("journal_mode")),
        damage=_find_damage(connection) if for_damage else None,
    )
    if inspection.pending or inspection.damage:
        return inspection
    sql = statements.load(migrate.DIALECT)
    return with_counts(inspection, lambda name: connection.execute(sql[name]).fetchall()[0])


def _find_damage(connection: apsw.Connection) -> str | None:
    """Return the first damage that SQLite reports, or None."""
    try:
        report = str(connection.execute("pragma quick_check(1)").fetchall()[0][0])
    except apsw.CorruptError as problem:
        return str(problem)
    return None if report == "ok" else report
