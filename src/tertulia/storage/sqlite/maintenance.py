"""Whole-file work on a SQLite store: check, back up, compact."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import apsw

from tertulia.errors import ConfigError, StoreError
from tertulia.storage import statements
from tertulia.storage.base import Progress
from tertulia.storage.sqlite import (
    inspect,
    migrate,
)

if TYPE_CHECKING:
    from tertulia.storage.sqlite.database import SqliteDatabase


def check(db: SqliteDatabase) -> list[str]:
    """Every fault found in the file, in words; an empty list for a sound store."""

    def work(connection: apsw.Connection) -> list[str]:
        index = _check_index(connection)
        found = [str(row[0]) for row in connection.execute("pragma integrity_check(20)")]
        # SQLite looks into the search index too, and calls what it finds there damage to the file.
        found = [fault for fault in found if not (index and "fts5" in fault.lower())]
        faults = [f"the file is damaged: {fault}" for fault in found if fault != "ok"]
        if faults:
            return faults + index
        sql = statements.load(migrate.DIALECT)
        return inspect.faults(sql, lambda name: connection.execute(sql[name])) + index

    return db.alone(work)


def backup(db: SqliteDatabase, target: str, *, progress: Progress | None = None) -> None:
    """Copy the whole store to a new file while it is in use."""
    if os.path.exists(target):
        raise ConfigError(f"{target} exists already.", hint="Name a new file.", field="target")
    partial = f"{target}.partial"

    def work(connection: apsw.Connection) -> None:
        with (
            apsw.Connection(partial) as copy,
            copy.backup("main", connection, "main") as steps,
        ):
            while not steps.done:
                steps.step(2000)
                if progress is not None:
                    progress(steps.page_count - steps.remaining, steps.page_count)
        copy.close()

    try:
        # Made before SQLite does, so that the copy is its owner's alone, like the store.
        os.close(os.open(partial, os.O_CREAT | os.O_RDWR, 0o600))
        db.alone(work)
        os.replace(partial, target)
    except OSError as problem:
        raise StoreError(
            f"The backup could not be written to {target}: {problem.strerror}.",
            hint="Look whether its folder exists and has space.",
            where=target,
        ) from problem
    finally:
        if os.path.exists(partial):
            os.unlink(partial)


def vacuum(db: SqliteDatabase) -> tuple[int, int]:
    """Give unused space back to the disk; the size of the file before and after, in bytes."""

    def work(connection: apsw.Connection) -> tuple[int, int]:
        connection.execute("pragma wal_checkpoint(truncate)")
        before = os.path.getsize(db.path)
        connection.execute("vacuum")
        connection.execute("pragma wal_checkpoint(truncate)")
        return before, os.path.getsize(db.path)

    return db.alone(work)


def _check_index(connection: apsw.Connection) -> list[str]:
    faults = []
    for table in ("words", "cards"):
        try:
            connection.execute(f"insert into {table} ({table}) values ('integrity-check')")
        except apsw.CorruptError as problem:
            faults.append(
                f"the search index is damaged ({problem}); mend it with:"
                " tertulia store check --rebuild-search"
            )
    return faults
