"""Migrations of a SQLite store."""

from __future__ import annotations

from pathlib import Path

import apsw

import tertulia
from tertulia.storage import statements
from tertulia.storage.sqlite import migrate as sqlite_migrate


def test_migrations_run_in_order_and_once(tmp_path: Path) -> None:
    path = tmp_path / "talk.db"
    tertulia.open(path).close()
    names = [name for name, _ in statements.migrations(sqlite_migrate.DIALECT)]
    assert names == sorted(names)
    numbers = [int(name[:4]) for name in names]
    assert len(set(numbers)) == len(numbers)
    connection = apsw.Connection(str(path))
    assert sqlite_migrate.applied_migrations(connection) == names
    assert sqlite_migrate.apply_migrations(connection, str(path)) == []
    assert sqlite_migrate.applied_migrations(connection) == names
    connection.close()
