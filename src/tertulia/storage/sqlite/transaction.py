"""Statements by name on one SQLite connection, and a record of them that can run again."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any

import apsw

from tertulia.core.text.search_terms import Phrase
from tertulia.errors import StoreUnavailable
from tertulia.storage import statements
from tertulia.storage.base import Params, Row, Step

_NO_PARAMS: Params = {}
# The parameter of the database's time, which every statement with `part_db_now` gets by itself.
_DB_NOW = "db_now"
# A statement this long takes as long to prepare as a turn takes to run.
_LONG_TEXT = 2000
# Beside so many recorded statements a few hundred run, with those that only read.
_RUNS_TO_KEEP = 128


class BoundStatements(dict[str, tuple[str, Callable[[Any], Any]]]):
    """The statements by name, each with the function that takes its values from the parameters.

    Numbered parameters bind in half the time of named ones. A statement is prepared when it is
    first used: a process uses few of them.
    """

    def __init__(self, sql: dict[str, str]) -> None:
        super().__init__()
        self._sql = sql
        self.long_texts: list[str] = []  # of those that were used

    def __missing__(self, name: str) -> tuple[str, Callable[[Any], Any]]:
        sql = self._sql[name]
        text, names = statements.replace_names(sql, "?", last=_DB_NOW)
        values_of: Callable[[Any], Any] = _keep
        if ";" in text:
            # Several statements: each takes its own part of the values, which names find.
            text = sql
        elif names:
            values_of = _getter_of(names)
        if names and len(text) >= _LONG_TEXT:
            self.long_texts.append(text)
        self[name] = text, values_of
        return self[name]

    def is_atomic(self, steps: Sequence[Step]) -> bool:
        """Return whether it is a single statement, which undoes itself if it fails."""
        return len(steps) == 1 and ";" not in self[steps[0][0]][0]


def _keep(params: Any) -> Any:
    return params


def _getter_of(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return the function that takes the values of some names from the parameters.

    The database's time, which is the machine's, is the last one if it is among them.
    """
    if names[-1] == _DB_NOW:
        others_of = _getter_of(names[:-1]) if len(names) > 1 else lambda params: ()
        return lambda params: (*others_of(params), time.time_ns() // 1000)
    if len(names) == 1:
        (only,) = names
        return lambda params: (params[only],)
    return itemgetter(*names)


class SqliteTransaction:
    """Statements by name on one connection."""

    __slots__ = ("_connection", "_cursor", "_statements")

    def __init__(self, connection: apsw.Connection, statements: BoundStatements) -> None:
        self._connection = connection
        # One for all statements: a new one for each takes as long as a small statement.
        self._cursor = connection.cursor()
        self._statements = statements

    def run(self, statement: str, params: Params = _NO_PARAMS) -> None:
        self._execute(statement, params)

    def changed(self, statement: str, params: Params = _NO_PARAMS) -> int:
        self._execute(statement, params)
        return self._connection.changes()

    def one(self, statement: str, params: Params = _NO_PARAMS) -> Row | None:
        rows = self._execute(statement, params)
        return rows[0] if rows else None

    def all(self, statement: str, params: Params = _NO_PARAMS) -> list[Row]:
        return self._execute(statement, params)

    def _execute(self, statement: str, params: Params) -> list[Row]:
        # All rows are fetched: an unfinished statement would prevent the commit.
        text, values_of = self._statements[statement]
        return self._cursor.execute(text, values_of(params)).fetchall()

    def many(self, statement: str, rows: Iterable[Params | Row]) -> None:
        if isinstance(rows, list) and len(rows) == 1:  # most turns store one message at a time
            self._execute(statement, rows[0])
        else:
            self._execute_many(statement, rows)

    def _execute_many(self, statement: str, rows: Iterable[Params | Row]) -> None:
        text, values_of = self._statements[statement]
        values = rows if values_of is _keep else map(values_of, rows)
        # What yields rows may run statements itself, so only a list needs no cursor of its own.
        runner = self._cursor if isinstance(rows, list) else self._connection
        runner.executemany(text, values)

    def together(self, steps: Sequence[Step]) -> list[list[Row]]:
        return [self._execute(*step) for step in steps]

    def lock(self, name: str, *, shared: bool = False) -> None:
        return  # a writer has the whole file locked

    def search_entry(self, text: str) -> Any:
        return text

    def search_query(self, phrases: list[Phrase]) -> str:
        """Return an FTS5 query. FTS5 takes nothing inside quotes as an operator."""
        return " ".join(
            f'"{words}"*' if is_prefix else f'"{words}"' for words, is_prefix in phrases
        )


class RecordedTransaction(SqliteTransaction):
    """Statements that can run again, with the same effect, after they were rolled back.

    What a statement does depends on nothing but its values, the time among them, and on what the
    statements before it have done. So those of several calls can share one savepoint: if one call
    fails, all are rolled back, and those of the others run again (decision 0064).
    """

    __slots__ = ("_record", "_runs")

    def __init__(self, connection: apsw.Connection, statements: BoundStatements) -> None:
        super().__init__(connection, statements)
        self._record: list[_RecordedRun] = []
        self._runs = 0  # of recorded statements, since `keep_prepared`

    def _execute(self, statement: str, params: Params) -> list[Row]:
        text, values_of = self._statements[statement]
        values = values_of(params)
        rows = self._cursor.execute(text, values).fetchall()
        if not text.startswith("select"):
            self._record.append((text, values, rows))
        return rows

    def _execute_many(self, statement: str, rows: Iterable[Params | Row]) -> None:
        text, values_of = self._statements[statement]
        used: list[Any] = []
        self._record.append((text, used, None))  # first: it may fail after some of the rows
        self._connection.executemany(text, _keep_used(map(values_of, rows), used))

    def keep_prepared(self) -> None:
        """Keep the long statements in the cache of apsw.

        It drops a statement that was not run for 512 others, and a claim is run once for many
        turns. Run without values, a statement is taken from the cache or prepared, then refused.
        """
        if self._runs < _RUNS_TO_KEEP:
            return
        self._runs = 0
        for text in self._statements.long_texts:
            with contextlib.suppress(apsw.BindingsError):
                self._cursor.execute(text)

    @property
    def record_length(self) -> int:
        """The number of statements that were recorded."""
        return len(self._record)

    def forget(self, first: int = 0) -> None:
        """Forget the recorded statements from a number on."""
        self._runs += len(self._record) - first
        del self._record[first:]

    def run_again(self) -> None:
        """Run the recorded statements again.

        Raise `StoreUnavailable` if one has another result: its caller was told the first one.
        """
        for text, values, rows in self._record:
            if rows is None:
                self._connection.executemany(text, values)
            elif self._cursor.execute(text, values).fetchall() != rows:
                raise StoreUnavailable(
                    "A statement had another result when it ran again.", hint="Try again."
                )


# The text of a statement, its values and its rows; or the values of each run, and no rows.
_RecordedRun = tuple[str, Any, list[Row] | None]


def _keep_used(values: Iterable[Any], used: list[Any]) -> Iterator[Any]:
    """Yield the values, and add each to `used`."""
    for value in values:
        used.append(value)
        yield value
