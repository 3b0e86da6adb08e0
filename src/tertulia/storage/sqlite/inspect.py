"""What stands in a store, looked at without changing it: nothing is made, migrated or locked."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import apsw
import msgspec

from tertulia.errors import NotAStore
from tertulia.storage import statements
from tertulia.storage.sqlite import migrate
from tertulia.storage.sqlite.errors import translate_errors

_COUNTED = ("current", "ended", "messages", "people", "calls")
_UNDELIVERED = ("dead", "unknown", "given_up")


class Inspection(msgspec.Struct, frozen=True):
    """A store as it was found; without counts if it is damaged or not of this program's schema."""

    applied: list[str]
    pending: list[str]
    journal: str | None = None  # of a file
    server: str | None = None  # its version, if the store is in one
    size: int | None = None
    damage: str | None = None
    current: int | None = None
    ended: int | None = None
    messages: int | None = None
    people: int | None = None
    calls: int | None = None
    unindexed: int | None = None
    dead: int = 0  # deliveries
    unknown: int = 0  # deliveries
    given_up: int = 0  # accepted messages


def inspect_store(path: str, *, for_damage: bool = False) -> Inspection:
    """Look at the store in a file; for damage too, which reads all of it."""
    with _read_only(path) as connection:
        return _look(connection, path, for_damage)


def applied(path: str) -> list[str]:
    """The migrations that the store in a file has had; none where there is no store."""
    if not os.path.isfile(path):
        return []
    with _read_only(path) as connection:
        return migrate.applied(connection)


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


def pending(had: list[str], dialect: str) -> list[str]:
    """What this program would still apply."""
    return [name for name, _ in statements.migrations(dialect) if name not in had]


def counted(found: Inspection, one: Callable[[str], Any]) -> Inspection:
    """The same with its counts; `one` gives the row of a statement."""
    counts = dict(zip(_COUNTED, one("survey_counts"), strict=True))
    counts |= zip(_UNDELIVERED, one("survey_undelivered"), strict=True)
    return msgspec.structs.replace(found, **counts, unindexed=one("survey_unindexed")[0])


def faults(sql: dict[str, str], rows: Callable[[str], Iterable[Any]]) -> list[str]:
    """What does not hold between the tables, in words; `rows` gives those of a statement."""
    found = []
    for name in sql:
        if name.startswith("check_"):
            broken = [str(row[0]) for row in islice(rows(name), 5)]
            words = name.removeprefix("check_").replace("_", " ")
            found += [f"{words}: {', '.join(broken)}"] if broken else []
    return found


def _look(connection: apsw.Connection, path: str, for_damage: bool) -> Inspection:
    if connection.pragma("application_id") != migrate.APPLICATION_ID:
        raise NotAStore(
            f"{path} is a SQLite database of another program.",
            hint="Name another file; this one was not changed.",
            where=path,
        )
    migrate.refuse_newer(connection, path)
    had = migrate.applied(connection)
    found = Inspection(
        had,
        pending(had, migrate.DIALECT),
        journal=str(connection.pragma("journal_mode")),
        damage=_damage(connection) if for_damage else None,
    )
    if found.pending or found.damage:
        return found
    sql = statements.load(migrate.DIALECT)
    return counted(found, lambda name: connection.execute(sql[name]).fetchall()[0])


def _damage(connection: apsw.Connection) -> str | None:
    try:
        found = str(connection.execute("pragma quick_check(1)").fetchall()[0][0])
    except apsw.CorruptError as problem:
        return str(problem)
    return None if found == "ok" else found
