"""What stands in a store, looked at without changing it: nothing is made, migrated or locked."""

from __future__ import annotations

import apsw
import msgspec

from tertulia.errors import NotAStore
from tertulia.storage import migrate, statements
from tertulia.storage.errors_map import translated


class Survey(msgspec.Struct, frozen=True):
    """A store as it was found; without counts if it is damaged or not of this program's schema."""

    applied: list[str]
    pending: list[str]
    journal: str
    damage: str | None = None
    current: int | None = None
    ended: int | None = None
    messages: int | None = None
    people: int | None = None
    calls: int | None = None
    unindexed: int | None = None


def survey(path: str, *, for_damage: bool = False) -> Survey:
    """Look at the store in a file; for damage too, which reads all of it."""
    try:
        connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
        try:
            return _look(connection, path, for_damage)
        finally:
            connection.close()
    except apsw.Error as problem:
        raise translated(problem, path) from problem


def _look(connection: apsw.Connection, path: str, for_damage: bool) -> Survey:
    if connection.pragma("application_id") != migrate.APPLICATION_ID:
        raise NotAStore(
            f"{path} is a SQLite database of another program.",
            hint="Name another file; this one was not changed.",
            where=path,
        )
    migrate.refuse_newer(connection, path)
    applied = migrate.applied(connection)
    pending = [name for name, _ in statements.migrations(migrate.DIALECT) if name not in applied]
    damage = _damage(connection) if for_damage else None
    found = Survey(applied, pending, str(connection.pragma("journal_mode")), damage)
    return found if pending or damage else _counted(connection, found)


def _counted(connection: apsw.Connection, found: Survey) -> Survey:
    sql = statements.load(migrate.DIALECT)
    counts = connection.execute(sql["survey_counts"]).fetchall()[0]
    unindexed = connection.execute(sql["survey_unindexed"]).fetchall()[0][0]
    names = ("current", "ended", "messages", "people", "calls")
    return msgspec.structs.replace(
        found, **dict(zip(names, counts, strict=True)), unindexed=unindexed
    )


def _damage(connection: apsw.Connection) -> str | None:
    try:
        found = str(connection.execute("pragma quick_check(1)").fetchall()[0][0])
    except apsw.CorruptError as problem:
        return str(problem)
    return None if found == "ok" else found
