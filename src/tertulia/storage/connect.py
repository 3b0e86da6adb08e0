"""Open and inspect a store by its location: a path, a sqlite URL or a postgresql URL."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from tertulia.core.settings import Settings
from tertulia.core.text.excerpt import short_repr
from tertulia.errors import ConfigError
from tertulia.install_command import install_command
from tertulia.storage.base import Database
from tertulia.storage.inspection import Inspection
from tertulia.storage.sqlite import inspect
from tertulia.storage.sqlite.database import SqliteDatabase

_SQLITE = "sqlite:///"
_POSTGRES = ("postgresql://", "postgres://")


def is_server(where: str) -> bool:
    """Return whether a location is a database server, not a file."""
    return where.startswith(_POSTGRES)


def public_name(where: str) -> str:
    """Return the location in a form that may be shown: without a password."""
    if not is_server(where):
        return where.removeprefix(_SQLITE)
    with _require_psycopg():
        from tertulia.storage.postgres.database import public_name as server_name
    return server_name(where)


def inspect_store(where: str, *, for_damage: bool = False) -> Inspection:
    """Inspect the store at a location without changing it."""
    if not is_server(where):
        return inspect.inspect_store(_require_path(where), for_damage=for_damage)
    with _require_psycopg():
        from tertulia.storage.postgres.inspect import inspect_store as inspect_server
    return inspect_server(where, public_name(where))


def applied_migrations(where: str) -> list[str]:
    """Return the migrations that were applied to a store; [] if there is no store."""
    if is_server(where):
        return inspect_store(where).applied
    return inspect.applied_migrations(_require_path(where))


def open_database(where: str | os.PathLike[str], settings: Settings) -> Database:
    """Open the database at a path, `sqlite:///path` or `postgresql://…`.

    Raise ConfigError if the location is invalid, StoreError if the store cannot be opened.
    """
    value: object = where  # callers without a type checker may pass anything
    text = os.fspath(where) if isinstance(value, str | os.PathLike) else _require_path(value)
    safe = settings.durability == "safe"
    if not is_server(text):
        return SqliteDatabase(_require_path(text), safe=safe, busy_seconds=settings.busy_seconds)
    with _require_psycopg():
        from tertulia.storage.postgres.database import PostgresDatabase
    return PostgresDatabase(
        text,
        safe=safe,
        busy_seconds=settings.busy_seconds,
        idle_seconds=settings.lease_seconds,
    )


def _require_path(where: object) -> str:
    """Return the path of the file at a location; raise ConfigError if it is not a file."""
    path = where.removeprefix(_SQLITE) if isinstance(where, str) else ""
    if not path:
        raise ConfigError(
            f"Invalid store location {short_repr(where)}.",
            hint="Use a path such as talk.db, sqlite:///talk.db or postgresql://host/name.",
            field="where",
        )
    if "://" in path:
        raise ConfigError(
            f"A store is in SQLite or PostgreSQL, not in {path.split('://')[0]}://.",
            hint="Use a path such as talk.db, sqlite:///talk.db or postgresql://host/name.",
            field="where",
        )
    return path


@contextmanager
def _require_psycopg() -> Iterator[None]:
    """Turn an ImportError in the block into a ConfigError that says what to install."""
    try:
        yield
    except ImportError as problem:
        raise ConfigError(
            "PostgreSQL needs psycopg, which is not installed.",
            hint=f"Install it: {install_command('postgres')}",
            field="where",
        ) from problem
