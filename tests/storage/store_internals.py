"""Access to the SQLite database behind a store."""

from __future__ import annotations

from tertulia import Store
from tertulia.storage.sqlite.database import SqliteDatabase


def sqlite_of(store: Store) -> SqliteDatabase:
    """Return the SQLite database of a store."""
    database = store.context.db
    assert isinstance(database, SqliteDatabase)
    return database
