"""What only tests of one database look at."""

from __future__ import annotations

from tertulia import Store
from tertulia.storage.sqlite.database import SqliteDatabase


def sqlite_of(store: Store) -> SqliteDatabase:
    """The SQLite database a store is in."""
    database = store.context.db
    assert isinstance(database, SqliteDatabase)
    return database
