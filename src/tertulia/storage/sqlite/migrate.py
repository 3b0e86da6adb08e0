"""Brings a store to the schema of this program: numbered scripts, each once, under a lock."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from datetime import UTC, datetime

import apsw

from tertulia.core.text import search_terms
from tertulia.errors import SchemaMismatch
from tertulia.storage import statements

DIALECT = "sqlite"
APPLICATION_ID = 0x74727475  # "trtu"


def applied(connection: apsw.Connection) -> list[str]:
    """The names of the migrations the store has had, in order."""
    has_any = connection.execute("select 1 from sqlite_schema where name = 'migrations'").fetchall()
    if not has_any:
        return []
    return [name for (name,) in connection.execute("select name from migrations order by name")]


def refuse_newer(connection: apsw.Connection, path: str) -> None:
    """Raise if the store has had migrations that this program does not know."""
    known = {name for name, _ in statements.migrations(DIALECT)}
    unknown = [name for name in applied(connection) if name not in known]
    if unknown:
        raise SchemaMismatch(
            f"{path} was written by a newer Tertulia (it has {unknown[-1]}).",
            hint="Upgrade this program: pip install --upgrade tertulia. The file was not changed.",
            where=path,
        )


def bring_up_to_date(
    connection: apsw.Connection, path: str, wait: Callable[[int], bool] = lambda tries: False
) -> list[str]:
    """Apply what is missing; exactly one of several programs that start at once does it.

    `wait` is called with the number of tries before while another one does: it pauses, and says
    whether to go on waiting.
    """
    scripts = statements.migrations(DIALECT)
    if not _begin(connection, [name for name, _ in scripts], wait):
        return []
    try:
        refuse_newer(connection, path)
        done = set(applied(connection))
        if not done:
            _create(connection)
        missing = [(name, script) for name, script in scripts if name not in done]
        for name, script in missing:
            connection.execute(script)
            connection.execute(
                "insert into migrations (name, applied_at) values (?, ?)",
                (name, datetime.now(UTC).isoformat(timespec="seconds")),
            )
        if not done:
            # Redaction is keyed with it: a plain hash of a phone number is no secret.
            connection.execute(
                "insert into installation (name, value) values ('secret', ?), ('search_rule', ?)",
                (os.urandom(32).hex(), str(search_terms.RULE)),
            )
        connection.execute("commit")
    except BaseException:
        if connection.in_transaction:
            connection.execute("rollback")
        raise
    return [name for name, _ in missing]


def _begin(connection: apsw.Connection, known: list[str], wait: Callable[[int], bool]) -> bool:
    """Begin to write, unless there is nothing to do; who had to wait mostly finds it done."""
    for tries in itertools.count():
        try:
            if applied(connection) == known:
                return False
            connection.execute("begin immediate")
        except apsw.BusyError:
            if not wait(tries):
                raise
        else:
            break
    return True


def _create(connection: apsw.Connection) -> None:
    connection.execute(f"pragma application_id = {APPLICATION_ID}")
    connection.execute(
        "create table migrations (name text primary key, applied_at text not null)"
        " strict, without rowid"
    )
