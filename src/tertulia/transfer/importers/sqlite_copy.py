"""SQLite databases of other programs, read from a copy.

Opening a database can change it: its log is folded in, its shared memory is made. So the file and
its log are copied, and the copy is opened. The other program may be at work meanwhile: a copy
counts only if neither file changed while it was made.

Damage does not end the reading. What one query cannot give is asked for row by row.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import apsw

from tertulia.transfer.importers.report import Findings
from tertulia.transfer.importers.safe_files import SafeFolder

_ASIDE = ("", "-wal", "-journal")
_TRIES = 10
_PAUSE = 0.05
_AT_ONCE = 512
_FAILURES = (apsw.Error, UnicodeDecodeError)
# Where nothing tells how far the rows of a damaged table go.
_FURTHEST = 100_000

Row = dict[str, Any]


class SqliteCopy:
    """A copy of a database, and what is wrong with it."""

    def __init__(self, connection: apsw.Connection, file: str, findings: Findings) -> None:
        self._connection = connection
        self.file = file
        self._findings = findings
        self._is_told = False
        self._scattered: dict[tuple[str, str], dict[Any, list[int]]] = {}

    def columns(self, table: str) -> list[str]:
        """The columns of a table; none if there is no such table."""
        try:
            found = self._connection.execute(f"pragma table_info({_quoted(table)})").fetchall()
        except _FAILURES as problem:
            self.damaged(f"{problem}")
            return []
        return [str(row[1]) for row in found]

    def rows(self, table: str) -> Iterator[Row]:
        """Every row of a table, in the order in which they were written."""
        columns = self.columns(table)
        if not columns:
            return
        last = 0
        try:
            for row in self._select(table, columns, "order by rowid"):
                last = row[0]
                yield dict(zip(columns, row[1:], strict=True))
        except _FAILURES as problem:
            self._told(problem)
            for row in self._scan(table, columns, last + 1, self._furthest(table)):
                yield dict(zip(columns, row[1:], strict=True))

    def rows_where(
        self, table: str, column: str, value: str, *, order: str = "rowid"
    ) -> Iterator[tuple[int, Row]]:
        """Rows in which a column has a value, with their numbers and in their order."""
        columns = self.columns(table)
        if not columns:
            return
        last, passed = 0, set()  # by number there is no need to remember each
        try:
            where = f"where {_quoted(column)} = ? order by {_quoted(order)}"
            for row in self._select(table, columns, where, (value,)):
                yield row[0], dict(zip(columns, row[1:], strict=True))
                last = row[0]
                if order != "rowid":
                    passed.add(last)
        except _FAILURES as problem:
            self._told(problem)
            for number in self._numbers(table, column).get(value, ()):
                if number not in passed and (passed or number > last):
                    for row in self._scan(table, columns, number, number):
                        yield row[0], dict(zip(columns, row[1:], strict=True))

    def values(self, table: str, column: str) -> list[Any]:
        """The different values of a column, as far as they can be read."""
        try:
            sql = f"select distinct {_quoted(column)} from {_quoted(table)}"
            return [row[0] for row in self._connection.execute(sql)]
        except _FAILURES as problem:
            self._told(problem)
            return list(self._numbers(table, column))

    def count(self, table: str) -> int:
        try:
            sql = f"select count(*) from {_quoted(table)}"
            found: list[tuple[Any, ...]] = self._connection.execute(sql).fetchall()
            return int(found[0][0])
        except _FAILURES:
            return 0

    def check(self) -> None:
        """Look whether the file is sound, and tell if it is not."""
        try:
            found = self._connection.execute("pragma quick_check(20)").fetchall()
        except apsw.SQLError:
            return  # it needs an extension that is not here
        except _FAILURES as problem:
            self.damaged(f"{problem}")
            return
        # Of a search index nothing is read, and some are sound in their own program's eyes only.
        words = [str(row[0]) for row in found]
        faults = [fault for fault in words if fault != "ok" and "fts" not in fault.lower()]
        if faults:
            self.damaged(faults[0])

    def damaged(self, detail: str) -> None:
        """Say once that the file is damaged."""
        if not self._is_told:
            told = f"{' '.join(detail.split())}; what can still be read was read"
            self._findings.add(self.file, None, "database_damaged", told)
        self._is_told = True

    def _told(self, problem: Exception) -> None:
        if not isinstance(problem, UnicodeDecodeError):
            self.damaged(f"{problem}")

    def _select(
        self, table: str, columns: Sequence[str], rest: str, params: tuple[Any, ...] = ()
    ) -> Iterator[tuple[Any, ...]]:
        names = ", ".join(map(_quoted, columns))
        sql = f"select rowid, {names} from {_quoted(table)} {rest}"
        yield from self._connection.execute(sql, params)

    def _scan(
        self, table: str, columns: Sequence[str], first: int, last: int
    ) -> Iterator[tuple[Any, ...]]:
        """Rows by number, around those that cannot be read."""
        for begin in range(first, last + 1, _AT_ONCE):
            yield from self._span(table, columns, begin, min(begin + _AT_ONCE - 1, last))

    def _span(
        self, table: str, columns: Sequence[str], first: int, last: int
    ) -> Iterator[tuple[Any, ...]]:
        rest = "where rowid between ? and ? order by rowid"
        try:
            yield from list(self._select(table, columns, rest, (first, last)))
        except _FAILURES as problem:
            if first < last:
                middle = (first + last) // 2
                yield from self._span(table, columns, first, middle)
                yield from self._span(table, columns, middle + 1, last)
            elif isinstance(problem, UnicodeDecodeError):
                yield from self._raw(table, columns, first)

    def _raw(self, table: str, columns: Sequence[str], number: int) -> Iterator[tuple[Any, ...]]:
        """A row with text that is no UTF-8: as bytes, made text here."""
        names = (
            f"case when typeof({n}) = 'text' then cast({n} as blob) else {n} end"
            for n in map(_quoted, columns)
        )
        sql = f"select {', '.join(names)} from {_quoted(table)} where rowid = ?"
        try:
            found = self._connection.execute(sql, (number,)).fetchall()
        except _FAILURES:
            return
        told = f"{table} row {number}: bytes that are no text were replaced by U+FFFD"
        self._findings.add(self.file, None, "invalid_utf8", told)
        for row in found:
            yield (
                number,
                *(v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in row),
            )

    def _numbers(self, table: str, column: str) -> dict[Any, list[int]]:
        """Which rows have which value, found by number and not by an index."""
        if (table, column) not in self._scattered:
            found: dict[Any, list[int]] = defaultdict(list)
            for number, value in self._scan(table, [column], 1, self._furthest(table)):
                found[value].append(number)
            self._scattered[table, column] = found
        return self._scattered[table, column]

    def _furthest(self, table: str) -> int:
        found = 0
        for sql, params in (
            (f"select max(rowid) from {_quoted(table)}", ()),
            ("select seq from sqlite_sequence where name = ?", (table,)),
        ):
            try:
                rows = self._connection.execute(sql, params).fetchall()
            except _FAILURES:
                continue
            if rows and isinstance(rows[0][0], int):
                found = max(found, rows[0][0])
        return found or _FURTHEST


@contextmanager
def copy_database(folder: SafeFolder, file: str) -> Iterator[SqliteCopy | None]:
    """A database of the folder, opened from a copy; None, and told, where that cannot be."""
    if not folder.exists(file) or folder.refuses(file):
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="tertulia-") as place:
        target = os.path.join(place, "copy.db")
        connection = _opened(folder, file, target)
        if connection is None:
            yield None
            return
        try:
            copy = SqliteCopy(connection, file, folder.findings)
            copy.check()
            yield copy
        finally:
            connection.close()


def _opened(folder: SafeFolder, file: str, target: str) -> apsw.Connection | None:
    try:
        if not _copy_still(folder, file, target):
            _copy_moving(folder.path(file), target)
        connection = apsw.Connection(target)
        connection.pragma("temp_store", 1)
        connection.execute("select count(*) from sqlite_master").fetchall()
    except OSError as problem:
        folder.findings.add(file, None, "unreadable", f"it cannot be copied: {problem.strerror}")
    except apsw.NotADBError as problem:
        folder.findings.add(file, None, "database_damaged", f"{problem}")
    except apsw.CorruptError as problem:
        return _opened_in_spite(folder, file, target, problem)
    except apsw.Error as problem:
        folder.findings.add(file, None, "unreadable", f"it cannot be opened: {problem}")
    else:
        return connection
    return None


def _opened_in_spite(
    folder: SafeFolder, file: str, target: str, problem: apsw.CorruptError
) -> apsw.Connection | None:
    """Open a copy that is cut off: what is left of it is read as far as it goes."""
    folder.findings.add(
        file, None, "database_damaged", f"{problem}; what can still be read was read"
    )
    connection = apsw.Connection(target)
    try:
        # Without this SQLite gives nothing at all of a file that is shorter than its head says.
        connection.execute("pragma writable_schema = on")
        connection.execute("select count(*) from sqlite_master").fetchall()
    except apsw.Error:
        connection.close()
        return None
    return connection


def _copy_still(folder: SafeFolder, file: str, target: str) -> bool:
    """Copy the file and its log; whether they stood still meanwhile."""
    parts = [part for part in _ASIDE if folder.is_file(file + part)]
    for _ in range(_TRIES):
        before = [_state(folder.path(file + part)) for part in _ASIDE]
        for part in parts:
            shutil.copyfile(folder.path(file + part), target + part)
        if before == [_state(folder.path(file + part)) for part in _ASIDE]:
            return True
        time.sleep(_PAUSE)
        parts = [part for part in _ASIDE if folder.is_file(file + part)]
        for part in _ASIDE[1:]:
            if os.path.exists(target + part):
                os.unlink(target + part)
    return False


def _copy_moving(path: str, target: str) -> None:
    """Copy a database that is written to all the time, as one more reader of it."""
    for part in _ASIDE:
        if os.path.exists(target + part):
            os.unlink(target + part)
    source = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        source.set_busy_timeout(10_000)
        with apsw.Connection(target) as into, into.backup("main", source, "main") as steps:
            steps.step()
        into.close()
    finally:
        source.close()


def _state(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns, found.st_ino


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
