"""Whole-file work on a SQLite store: check, back up, compact."""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING

import apsw

from tertulia.errors import ConfigError, StoreError, StoreFull
from tertulia.storage import statements
from tertulia.storage.base import Progress
from tertulia.storage.inspection import find_violations
from tertulia.storage.sqlite import migrate

if TYPE_CHECKING:
    from tertulia.storage.sqlite.database import SqliteDatabase

_PAGES_PER_STEP = 2000


def check(db: SqliteDatabase) -> list[str]:
    """Return a description of every fault in the file; an empty list for a sound store."""

    def work(connection: apsw.Connection) -> list[str]:
        # In this order: FTS5 caches the structure of its index in a connection, and the pragma does
        # not look whether somebody has written since. It would report damage to a sound store.
        reports = [str(row[0]) for row in connection.execute("pragma integrity_check(20)")]
        index_faults = _check_index(connection)
        # SQLite checks the search index too, and reports its faults as damage to the file.
        reports = [line for line in reports if not (index_faults and "fts5" in line.lower())]
        faults = [f"the file is damaged: {line}" for line in reports if line != "ok"]
        if faults:
            return faults + index_faults
        sql = statements.load(migrate.DIALECT)
        return find_violations(sql, lambda name: connection.execute(sql[name])) + index_faults

    return db.run_on_own_connection(work)


def backup(db: SqliteDatabase, target: str, *, progress: Progress | None = None) -> None:
    """Copy the whole store, as it is now, to a new file while it is in use.

    The copy is one snapshot, held by a read transaction: without it SQLite begins anew after every
    commit of another connection, and on a busy store never ends. Meanwhile the -wal file keeps what
    is written. Raise ConfigError if the file exists, StoreError if it cannot be written.
    """
    if os.path.exists(target):
        raise ConfigError(f"{target} exists already.", hint="Name a new file.", field="target")
    partial = f"{target}.partial"

    def work(connection: apsw.Connection) -> None:
        # The first read takes the snapshot; `begin` alone does not.
        connection.execute("begin; select 1 from sqlite_schema limit 1").fetchall()
        with (
            closing(apsw.Connection(partial)) as copy,
            copy.backup("main", connection, "main") as steps,
        ):
            while not steps.done:
                steps.step(_PAGES_PER_STEP)
                if progress is not None:
                    progress(steps.page_count - steps.remaining, steps.page_count)

    try:
        # Created here, before SQLite does it, so that only the owner may read it, like the store.
        os.close(os.open(partial, os.O_CREAT | os.O_RDWR, 0o600))
        db.run_on_own_connection(work)
        os.replace(partial, target)
    except StoreFull as problem:
        raise StoreFull(
            f"There is no space left for the backup {target!r}.",
            hint="Free some space, or name a file on another disk.",
            where=target,
        ) from problem
    except (OSError, ValueError) as problem:  # ValueError: NUL or a lone surrogate in the path
        reason = problem.strerror if isinstance(problem, OSError) else "no file has such a name"
        raise StoreError(
            f"The backup could not be written to {target!r}: {reason}.",
            hint="Check that its folder exists and has space.",
            where=target,
        ) from problem
    finally:
        if os.path.exists(partial):
            os.unlink(partial)


def vacuum(db: SqliteDatabase) -> tuple[int, int]:
    """Give unused space back to the disk; return the file size before and after, in bytes."""

    def work(connection: apsw.Connection) -> tuple[int, int]:
        connection.execute("pragma wal_checkpoint(truncate)")
        before = os.path.getsize(db.file.path)
        connection.execute("vacuum")
        connection.execute("pragma wal_checkpoint(truncate)")
        return before, os.path.getsize(db.file.path)

    return db.run_on_own_connection(work)


def _check_index(connection: apsw.Connection) -> list[str]:
    faults = []
    for table in ("words", "cards"):
        try:
            connection.execute(f"insert into {table} ({table}) values ('integrity-check')")
        except apsw.CorruptError as problem:
            faults.append(
                f"the search index is damaged ({problem}); repair it with:"
                " tertulia store check --rebuild-search"
            )
    return faults
