"""Inspecting a SQLite store changes nothing."""

from __future__ import annotations

import os
from pathlib import Path

import apsw
import pytest

import tertulia
from tertulia import NotAStore, SchemaMismatch, StoreUnavailable
from tertulia.storage import statements
from tertulia.storage.sqlite import inspect
from tests.storage.sqlite.store_files import create_store, refused, unchanged


def test_current_store_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "talk.db"
    create_store(path)
    with unchanged(path):
        inspection = inspect.inspect_store(str(path), for_damage=True)
    assert (inspection.journal, inspection.pending, inspection.damage) == ("wal", [], None)
    assert (inspection.current, inspection.messages) == (1, 21)


def test_old_store_has_pending_migrations_and_no_counts(tmp_path: Path) -> None:
    path = tmp_path / "talk.db"
    create_store(path)
    names = [name for name, _ in statements.migrations("sqlite")]
    connection = apsw.Connection(str(path))
    connection.execute("delete from migrations where name = ?", (names[-1],))
    connection.close()
    inspection = inspect.inspect_store(str(path))
    assert (inspection.applied, inspection.pending) == (names[:-1], names[-1:])
    assert inspection.messages is None
    assert inspect.applied_migrations(str(path)) == names[:-1]


def test_damage_is_reported_without_counts(tmp_path: Path) -> None:
    path = tmp_path / "talk.db"
    create_store(path)
    connection = apsw.Connection(str(path))
    ((root,),) = connection.execute(
        "select rootpage from sqlite_schema where name = 'messages'"
    ).fetchall()
    connection.close()
    with path.open("r+b") as file:
        file.seek((int(str(root)) - 1) * 4096)
        file.write(b"\xff" * 4096)
    inspection = inspect.inspect_store(str(path), for_damage=True)
    assert inspection.damage
    assert inspection.messages is None


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("pragma application_id = 77", NotAStore),
        ("insert into migrations values ('9999_the_future', '2030-01-01')", SchemaMismatch),
    ],
)
def test_unreadable_store_is_refused(
    tmp_path: Path, statement: str, error: type[tertulia.Error]
) -> None:
    path = tmp_path / "talk.db"
    create_store(path)
    connection = apsw.Connection(str(path))
    connection.execute(statement)
    connection.close()
    with unchanged(path), refused(error):
        inspect.inspect_store(str(path))


def test_missing_file_is_not_created(tmp_path: Path) -> None:
    path = str(tmp_path / "talk.db")
    assert inspect.applied_migrations(path) == []
    with refused(StoreUnavailable):
        inspect.inspect_store(path)
    assert os.listdir(tmp_path) == []
