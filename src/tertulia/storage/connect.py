"""Which database a place is in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from tertulia.core.settings import Settings
from tertulia.errors import ConfigError
from tertulia.storage.base import Database
from tertulia.storage.sqlite import inspect
from tertulia.storage.sqlite.database import SqliteDatabase
from tertulia.storage.sqlite.inspect import Inspection

_SQLITE = "sqlite:///"
_POSTGRES = ("postgresql://", "postgres://")


def is_server(where: str) -> bool:
    """Whether a place is in a database server, not in a file."""
    return where.startswith(_POSTGRES)


def public_name(where: str) -> str:
    """The place in words that may be shown: no password in them."""
    if not is_server(where):
        return where.removeprefix(_SQLITE)
    with _psycopg_needed():
        from tertulia.storage.postgres.database import public_name as of_server
    return of_server(where)


def look(where: str, *, for_damage: bool = False) -> Inspection:
    """What stands in the store at a place; nothing is changed."""
    if not is_server(where):
        return inspect.inspect_store(_path(where), for_damage=for_damage)
    with _psycopg_needed():
        from tertulia.storage.postgres.inspect import inspect_store as survey_of_server
    return survey_of_server(where, public_name(where))


def applied(where: str) -> list[str]:
    """The migrations that the store at a place has had; none where there is no store."""
    return look(where).applied if is_server(where) else inspect.applied(_path(where))


def open_database(where: str | os.PathLike[str], settings: Settings) -> Database:
    """Open the database at a path, `sqlite:///path` or `postgresql://…`."""
    given: object = where
    text = os.fspath(where) if isinstance(given, str | os.PathLike) else _path(given)
    safe = settings.durability == "safe"
    if not is_server(text):
        return SqliteDatabase(_path(text), safe=safe, busy_seconds=settings.busy_seconds)
    with _psycopg_needed():
        from tertulia.storage.postgres.database import PostgresDatabase
    return PostgresDatabase(
        text,
        safe=safe,
        busy_seconds=settings.busy_seconds,
        idle_seconds=settings.lease_seconds,
    )


def _path(where: object) -> str:
    """The file that a place names."""
    path = where.removeprefix(_SQLITE) if isinstance(where, str) else ""
    if not path:
        raise ConfigError(
            f"{where!r} is no place for a store.", hint="Give a path, as talk.db.", field="where"
        )
    if "://" in path:
        raise ConfigError(
            f"Stores are kept in SQLite or PostgreSQL, not at {path.split('://')[0]}://.",
            hint="Give a path, sqlite:///talk.db or postgresql://host/name.",
            field="where",
        )
    return path


@contextmanager
def _psycopg_needed() -> Iterator[None]:
    try:
        yield
    except ImportError as problem:
        raise ConfigError(
            "PostgreSQL needs psycopg, which is not installed.",
            hint="Install it: pip install 'tertulia[postgres]'",
            field="where",
        ) from problem
