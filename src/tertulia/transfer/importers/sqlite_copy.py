"""Read a SQLite database of another program from a copy.

Opening a database can change it: SQLite folds its write-ahead log in and makes a shared-memory
file. So the file and its log are copied, and the copy is opened. The other program may be running:
a copy is used only if neither file changed while it was made.

Damage does not stop the import: rows that one query cannot return are read one by one.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import apsw

from tertulia.transfer.importers.report import UNREADABLE, Findings
from tertulia.transfer.importers.safe_files import SafeFolder

# A database file and its logs. The shared-memory file is left out: SQLite rebuilds it.
_SUFFIXES = ("", "-wal", "-journal")
_COPY_ATTEMPTS = 10
_PAUSE_SECONDS = 0.05
# Row numbers that are asked for by one query when a damaged table is scanned.
_ROWS_PER_SCAN = 512
_FAILURES = (apsw.Error, UnicodeDecodeError)
# The last row number to try if a damaged table does not reveal it.
_LAST_ROW = 100_000

Row = dict[str, Any]


class SqliteCopy:
    """An open copy of a database; it reports damage to `findings`."""

    def __init__(self, connection: apsw.Connection, file: str, findings: Findings) -> None:
        self._connection = connection
        self.file = file
        self._findings = findings
        self._is_damage_reported = False
        self._rows_by_value: dict[tuple[str, str], dict[Any, list[int]]] = {}

    def columns(self, table: str) -> list[str]:
        """Return the columns of a table; an empty list if there is no such table."""
        try:
            rows = self._connection.execute(f"pragma table_info({_quoted(table)})").fetchall()
        except _FAILURES as problem:
            self.report_damage(f"{problem}")
            return []
        return [str(row[1]) for row in rows]

    def rows(self, table: str) -> Iterator[Row]:
        """Yield every row of a table in the order of insertion."""
        columns = self.columns(table)
        if not columns:
            return
        last = 0
        try:
            for row in self._select(table, columns, "order by rowid"):
                last = row[0]
                yield dict(zip(columns, row[1:], strict=True))
        except _FAILURES as problem:
            self._report(problem)
            for row in self._scan(table, columns, last + 1, self._last_row(table)):
                yield dict(zip(columns, row[1:], strict=True))

    def rows_where(
        self, table: str, column: str, value: str, *, order: str = "rowid"
    ) -> Iterator[tuple[int, Row]]:
        """Yield the rows with a value in a column, each with its row number, in order."""
        columns = self.columns(table)
        if not columns:
            return
        last, yielded = 0, set()  # rows already yielded; in row order the last number is enough
        try:
            where = f"where {_quoted(column)} = ? order by {_quoted(order)}"
            for row in self._select(table, columns, where, (value,)):
                yield row[0], dict(zip(columns, row[1:], strict=True))
                last = row[0]
                if order != "rowid":
                    yielded.add(last)
        except _FAILURES as problem:
            self._report(problem)
            for number in self._numbers(table, column).get(value, ()):
                if number not in yielded and (yielded or number > last):
                    for row in self._scan(table, columns, number, number):
                        yield row[0], dict(zip(columns, row[1:], strict=True))

    def values(self, table: str, column: str) -> list[Any]:
        """Return the distinct values of a column, as far as they can be read."""
        try:
            sql = f"select distinct {_quoted(column)} from {_quoted(table)}"
            return [row[0] for row in self._connection.execute(sql)]
        except _FAILURES as problem:
            self._report(problem)
            return list(self._numbers(table, column))

    def check(self) -> None:
        """Run SQLite's quick check, and report the first fault."""
        try:
            rows = self._connection.execute("pragma quick_check(20)").fetchall()
        except apsw.SQLError:
            return  # the schema needs an extension that is not installed
        except _FAILURES as problem:
            self.report_damage(f"{problem}")
            return
        # Search indexes are not read, and some look damaged without the other program's tokenizer.
        lines = [str(row[0]) for row in rows]
        faults = [fault for fault in lines if fault != "ok" and "fts" not in fault.lower()]
        if faults:
            self.report_damage(faults[0])

    def report_damage(self, detail: str) -> None:
        """Report once that the file is damaged."""
        if not self._is_damage_reported:
            detail = f"{' '.join(detail.split())}; the readable rows were imported"
            self._findings.add(self.file, None, "database_damaged", detail)
        self._is_damage_reported = True

    def _report(self, problem: Exception) -> None:
        if not isinstance(problem, UnicodeDecodeError):
            self.report_damage(f"{problem}")

    def _select(
        self, table: str, columns: Sequence[str], rest: str, params: tuple[Any, ...] = ()
    ) -> Iterator[tuple[Any, ...]]:
        names = ", ".join(map(_quoted, columns))
        sql = f"select rowid, {names} from {_quoted(table)} {rest}"
        yield from self._connection.execute(sql, params)

    def _scan(
        self, table: str, columns: Sequence[str], first: int, last: int
    ) -> Iterator[tuple[Any, ...]]:
        """Yield rows by number, skipping those that cannot be read."""
        for begin in range(first, last + 1, _ROWS_PER_SCAN):
            yield from self._span(table, columns, begin, min(begin + _ROWS_PER_SCAN - 1, last))

    def _span(
        self, table: str, columns: Sequence[str], first: int, last: int
    ) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a span; halve it until only the rows that cannot be read are left."""
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
        """Yield a row whose text is not UTF-8: read as bytes and decoded here."""
        names = (
            f"case when typeof({n}) = 'text' then cast({n} as blob) else {n} end"
            for n in map(_quoted, columns)
        )
        sql = f"select {', '.join(names)} from {_quoted(table)} where rowid = ?"
        try:
            rows = self._connection.execute(sql, (number,)).fetchall()
        except _FAILURES:
            return
        detail = f"{table} row {number}: invalid UTF-8 was replaced by U+FFFD"
        self._findings.add(self.file, None, "invalid_utf8", detail)
        for row in rows:
            yield (
                number,
                *(v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in row),
            )

    def _numbers(self, table: str, column: str) -> dict[Any, list[int]]:
        """Return the row numbers of each value, from a scan by row number instead of an index."""
        if (table, column) not in self._rows_by_value:
            numbers: dict[Any, list[int]] = defaultdict(list)
            for number, value in self._scan(table, [column], 1, self._last_row(table)):
                numbers[value].append(number)
            self._rows_by_value[table, column] = numbers
        return self._rows_by_value[table, column]

    def _last_row(self, table: str) -> int:
        last = 0
        for sql, params in (
            (f"select max(rowid) from {_quoted(table)}", ()),
            ("select seq from sqlite_sequence where name = ?", (table,)),
        ):
            try:
                rows = self._connection.execute(sql, params).fetchall()
            except _FAILURES:
                continue
            if rows and isinstance(rows[0][0], int):
                last = max(last, rows[0][0])
        return last or _LAST_ROW


@contextmanager
def copy_database(folder: SafeFolder, file: str) -> Iterator[SqliteCopy | None]:
    """Open a copy of a database of the folder; yield None (and report a problem) if impossible."""
    if not folder.exists(file) or folder.refuses(file):
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="tertulia-") as folder_path:
        target = os.path.join(folder_path, "copy.db")
        connection = _open_copy(folder, file, target)
        if connection is None:
            yield None
            return
        try:
            copy = SqliteCopy(connection, file, folder.findings)
            copy.check()
            yield copy
        finally:
            connection.close()


def _open_copy(folder: SafeFolder, file: str, target: str) -> apsw.Connection | None:
    """Copy a database and open the copy; return None (and report a problem) if impossible."""
    try:
        if not _copy_files(folder, file, target):
            _copy_by_backup(folder.path(file), target)
        return _open_checked(target)
    except OSError as problem:
        folder.findings.add(file, None, UNREADABLE, f"cannot be copied: {problem.strerror}")
    except apsw.NotADBError as problem:
        folder.findings.add(file, None, "database_damaged", f"{problem}")
    except apsw.CorruptError as problem:
        return _open_damaged(folder, file, target, problem)
    except apsw.Error as problem:
        folder.findings.add(file, None, UNREADABLE, f"cannot be opened: {problem}")
    return None


def _open_checked(target: str) -> apsw.Connection:
    """Open a copy and read its schema, so that damage shows here; raise apsw.Error."""
    connection = apsw.Connection(target)
    try:
        connection.pragma("temp_store", 1)
        connection.execute("select count(*) from sqlite_master").fetchall()
    except apsw.Error:
        connection.close()
        raise
    return connection


def _open_damaged(
    folder: SafeFolder, file: str, target: str, problem: apsw.CorruptError
) -> apsw.Connection | None:
    """Open a copy of a truncated file, to read the part that is left."""
    folder.findings.add(
        file, None, "database_damaged", f"{problem}; the readable rows were imported"
    )
    connection = apsw.Connection(target)
    try:
        # Without this SQLite returns nothing of a file that is shorter than its header says.
        connection.execute("pragma writable_schema = on")
        connection.execute("select count(*) from sqlite_master").fetchall()
    except apsw.Error:
        connection.close()
        return None
    return connection


def _copy_files(folder: SafeFolder, file: str, target: str) -> bool:
    """Copy the file and its logs; return whether none of them changed meanwhile."""
    parts = [part for part in _SUFFIXES if folder.is_file(file + part)]
    for _ in range(_COPY_ATTEMPTS):
        before = [_state(folder.path(file + part)) for part in _SUFFIXES]
        for part in parts:
            shutil.copyfile(folder.path(file + part), target + part)
        if before == [_state(folder.path(file + part)) for part in _SUFFIXES]:
            return True
        time.sleep(_PAUSE_SECONDS)
        parts = [part for part in _SUFFIXES if folder.is_file(file + part)]
        for part in _SUFFIXES[1:]:
            if os.path.exists(target + part):
                os.unlink(target + part)
    return False


def _copy_by_backup(path: str, target: str) -> None:
    """Copy a database that is being written to, with SQLite's backup, as one more reader."""
    for part in _SUFFIXES:
        if os.path.exists(target + part):
            os.unlink(target + part)
    source = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        source.set_busy_timeout(10_000)
        with (
            closing(apsw.Connection(target)) as into,
            into.backup("main", source, "main") as backup,
        ):
            backup.step()
    finally:
        source.close()


def _state(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ino


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
