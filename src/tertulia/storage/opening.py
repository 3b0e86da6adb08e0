"""Which database a place is in."""

from __future__ import annotations

import os

from tertulia.errors import ConfigError
from tertulia.storage.base import Database
from tertulia.storage.sqlite import SqliteDatabase

_POSTGRES = ("postgresql://", "postgres://")


def open_database(where: str | os.PathLike[str], *, safe: bool, busy_seconds: float) -> Database:
    """Open the database at a path, `sqlite:///path` or `postgresql://…`."""
    text = os.fspath(where)
    if not text:
        raise ConfigError(f"{where!r} is no place for a store.", hint="Give a path, as talk.db.")
    if text.startswith(_POSTGRES):
        return _postgres(text, safe, busy_seconds)
    if text.startswith("sqlite:///"):
        text = text.removeprefix("sqlite:///")
    elif "://" in text:
        raise ConfigError(
            f"Stores are kept in SQLite or PostgreSQL, not at {text.split('://')[0]}://.",
            hint="Give a path, sqlite:///talk.db or postgresql://host/name.",
            field="where",
        )
    return SqliteDatabase(text, safe=safe, busy_seconds=busy_seconds)


def _postgres(dsn: str, safe: bool, busy_seconds: float) -> Database:
    try:
        from tertulia.storage.postgres import PostgresDatabase
    except ImportError as problem:
        raise ConfigError(
            "PostgreSQL needs psycopg, which is not installed.",
            hint="Install it: pip install 'tertulia[postgres]'",
            field="where",
        ) from problem
    return PostgresDatabase(dsn, safe=safe, busy_seconds=busy_seconds)
