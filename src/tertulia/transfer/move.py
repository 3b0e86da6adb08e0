"""Move a store to another database while it is in use.

Rows are compared page by page, and only pages that differ are written: the first pass copies
everything, the next one what has changed since; a move that was interrupted resumes with what is
missing. During the last pass nobody can write to the old store. When every table of the new store
has been read back and has the same rows, the old store is closed for good and records where its
conversations are.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from tertulia.core.settings import Settings
from tertulia.errors import IllegalMove, NotAStore, StoreCorrupt, StoreError
from tertulia.storage import installation, tables
from tertulia.storage.base import Database, Row, Transaction
from tertulia.storage.connect import open_database, public_name
from tertulia.storage.tables import TABLES, Key, Table
from tertulia.transfer.progress_callback import Progress

MOVING = "moving"  # set in an incomplete target: a hash of the secret of the store it comes from
MOVED_TO = "moved_to"  # set in a source that was moved: where its conversations are

# Two passes while the store is in use: one for everything, one for changes during the first.
_ONLINE_PASSES = 2

_encode = msgspec.json.Encoder().encode

# Runs a function in a transaction of one store and returns its rows.
Reader = Callable[[Callable[[Transaction], list[Row]]], list[Row]]


class TableSum(NamedTuple):
    """The content of a table: its number of rows, and the hash of all rows in key order."""

    rows: int
    digest: str


class MoveReport(NamedTuple):
    """The result of a completed move."""

    source: str
    target: str
    tables: dict[str, TableSum]

    @property
    def rows(self) -> int:
        """The number of rows in all tables."""
        return sum(table.rows for table in self.tables.values())


def move(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
) -> MoveReport:
    """Move a whole store to another, empty database; run it again to resume.

    Raise `IllegalMove` if the source was moved elsewhere, `NotAStore` if the target is in use, and
    `StoreCorrupt` if the copy differs; the source is then unchanged.
    """
    settings = Settings()
    old = open_database(source, settings)
    try:
        new = open_database(target, settings)
        try:
            return _Move(old, new, progress).run(public_name(os.fspath(target)))
        finally:
            new.close()
    finally:
        old.close()


class _Move:
    def __init__(self, old: Database, new: Database, progress: Progress | None) -> None:
        self._old = old
        self._new = new
        self._progress = progress
        self._done = self._total = 0

    def run(self, target: str) -> MoveReport:
        if self._old.identity == self._new.identity:
            raise IllegalMove("A store cannot be moved to itself.", hint="Name another database.")
        is_closed = self._is_closed(target)
        if not (is_closed and self._new.read(lambda tx: installation.get(tx, MOVING)) is None):
            self._claim_target()
        if not is_closed:
            rows = self._old.read(tables.count_rows)
            self._total = rows * (_ONLINE_PASSES + 1)
            for _ in range(_ONLINE_PASSES):
                self._copy_tables(self._old.read)
            self._old.exclusive(lambda tx: self._finish(tx, target))
        sums = {table.name: self._sum_of_new(table) for table in TABLES}
        self._new.write(lambda tx: installation.delete(tx, MOVING))
        return MoveReport(self._old.name, target, sums)

    # -- marks in both stores

    def _claim_target(self) -> None:
        """Mark the target as incomplete; raise `NotAStore` if it is in use."""
        secret = self._old.read(lambda tx: installation.require(tx, "secret"))
        mark = hashlib.sha256(secret.encode()).hexdigest()

        def work(tx: Transaction) -> None:
            moving = installation.get(tx, MOVING)
            if moving is None and not tables.is_empty(tx):
                raise NotAStore(
                    f"{self._new.name} already holds a store.",
                    hint="Give an empty database. Nothing was changed.",
                )
            if moving is not None and moving != mark:
                raise NotAStore(
                    f"Another store is being moved to {self._new.name}.",
                    hint="Finish that move first, or give another database.",
                )
            installation.put(tx, MOVING, mark)

        self._new.write(work)

    def _is_closed(self, target: str) -> bool:
        """Return whether the source is closed already and only the last step is missing."""
        moved_to = self._old.read(lambda tx: installation.get(tx, MOVED_TO))
        if moved_to is not None and moved_to != target:
            raise IllegalMove(
                f"This store was moved to {moved_to}.", hint="Move the store there instead."
            )
        return moved_to is not None

    def _finish(self, tx: Transaction, target: str) -> None:
        """Run the last pass while nobody else can write, then close the old store."""
        sums = self._copy_tables(lambda work: work(tx), is_last=True)
        for table in TABLES:
            copied = self._sum_of_new(table)
            if copied != sums[table.name]:
                raise StoreCorrupt(
                    f"The table {table.name} has {copied.rows} rows in the new store, which differ"
                    f" from the {sums[table.name].rows} of the old one.",
                    hint="The old store is unchanged. Run the move again.",
                )
        self._new.write(tables.finish_copy)
        installation.put(tx, MOVED_TO, target)
        tables.close_for_good(tx)

    # -- rows

    def _copy_tables(self, read: Reader, *, is_last: bool = False) -> dict[str, TableSum]:
        """Make every table of the new store equal to the old one; return the sums of the old."""
        return {table.name: self._copy_table(table, read, is_last) for table in TABLES}

    def _copy_table(self, table: Table, read: Reader, is_last: bool) -> TableSum:
        """Copy the pages that differ, and return the sum of the old table.

        All differing pages are deleted before any is written: two rows may have swapped unique
        values.
        """
        summing = _RunningSum()
        different: list[tuple[Key, Key]] = []
        after = table.lowest_key
        while rows := _page(table, after, read):
            summing.add(rows)
            last = table.key_of(rows[-1])
            copied = list(_rows_between(table, after, last, self._new.read))
            if copied != rows:
                different.append((after, last))
                self._drop(table, copied)
            after = last
            self._advance(len(rows))
        while rest := _page(table, after, self._new.read):
            self._drop(table, rest)
        for first, last in different:
            self._put(table, list(_rows_between(table, first, last, read)), is_last)
        return summing.total()

    def _drop(self, table: Table, rows: list[Row]) -> None:
        self._new.write(lambda tx: table.delete(tx, rows))

    def _put(self, table: Table, rows: list[Row], is_last: bool) -> None:
        try:
            self._new.write(lambda tx: table.put(tx, rows))
        except StoreError as problem:
            # Pages read at different times may contradict each other while the store is in use, for
            # example two sessions that were current one after the other. The next pass corrects it.
            if is_last or type(problem) is not StoreError:
                raise

    def _sum_of_new(self, table: Table) -> TableSum:
        summing = _RunningSum()
        after = table.lowest_key
        while rows := _page(table, after, self._new.read):
            summing.add(rows)
            after = table.key_of(rows[-1])
        return summing.total()

    def _advance(self, rows: int) -> None:
        self._done += rows
        if self._progress is not None:
            self._progress(min(self._done, self._total), self._total)


class _RunningSum:
    def __init__(self) -> None:
        self._rows = 0
        self._hash = hashlib.sha256()

    def add(self, rows: list[Row]) -> None:
        self._rows += len(rows)
        for row in rows:
            self._hash.update(_encode(row))

    def total(self) -> TableSum:
        return TableSum(self._rows, self._hash.hexdigest())


def _page(table: Table, after: Key, read: Reader) -> list[Row]:
    return read(lambda tx: table.page_after(tx, after))


def _rows_between(table: Table, after: Key, last: Key, read: Reader) -> Iterator[Row]:
    """Yield the rows after a key up to another key. Both databases order keys by bytes."""
    end = tuple(last.values())
    while rows := _page(table, after, read):
        for row in rows:
            if tuple(table.key_of(row).values()) > end:
                return
            yield row
        after = table.key_of(rows[-1])
