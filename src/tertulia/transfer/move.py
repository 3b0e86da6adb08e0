"""Moving a store to another database while it is in use.

The rows are compared page by page, and only pages that differ are written: the first time that
copies everything, the next time what has changed since, and after an interruption what is missing.
So a move that is run again goes on where it was. In the last pass nobody can write to the old
store; when every table of the new one has been read back and has the same rows, the old one is
closed for good, and says where its conversations are.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from tertulia.core.settings import Settings
from tertulia.errors import IllegalMove, NotAStore, StoreCorrupt, StoreError
from tertulia.storage import tables
from tertulia.storage.base import Database, Row, Transaction
from tertulia.storage.connect import (
    open_database,
    public_name,
)
from tertulia.storage.tables import (
    TABLES,
    Table,
)
from tertulia.transfer.atomic_file import Progress

MOVING = "moving"  # stands in a store that is not whole yet: the secret of the one it comes from
MOVED_TO = "moved_to"  # stands in a store that is no longer used: where its conversations are

# While people write, two passes: one for everything, one for what changed during the first.
_ONLINE_PASSES = 2

_encode = msgspec.json.Encoder().encode

Key = Mapping[str, Any]
# Gives what some work finds in the old store.
Reader = Callable[[Callable[[Transaction], list[Row]]], list[Row]]


class TableSum(NamedTuple):
    """What a table holds: how many rows, and the hash of all of them in their order."""

    rows: int
    digest: str


class MoveReport(NamedTuple):
    """A move that is done."""

    source: str
    target: str
    tables: dict[str, TableSum]

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.tables.values())


def move(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
) -> MoveReport:
    """Move a whole store to another, empty database; run again, it goes on where it was."""
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
        if not (is_closed and self._new.read(lambda tx: _note(tx, MOVING)) is None):
            self._claim_target()
        if not is_closed:
            rows = self._old.read(lambda tx: _one(tx, "copy_count"))
            self._total = rows * (_ONLINE_PASSES + 1)
            for _ in range(_ONLINE_PASSES):
                self._bring_over(self._old.read)
            self._old.exclusive(lambda tx: self._finish(tx, target))
        sums = {table.name: self._sum_of_new(table) for table in TABLES}
        self._new.write(lambda tx: tx.run("installation_drop", {"name": MOVING}))
        return MoveReport(self._old.name, target, sums)

    # -- the old store and the new one

    def _claim_target(self) -> None:
        """Mark the new store as not whole; refuse one that is anything else."""
        secret = self._old.read(lambda tx: _one(tx, "installation_get", name="secret"))
        mark = hashlib.sha256(secret.encode()).hexdigest()

        def work(tx: Transaction) -> None:
            found = _note(tx, MOVING)
            if found is None and not tables.is_empty(tx):
                raise NotAStore(
                    f"There is a store in {self._new.name} already.",
                    hint="Name an empty database; nothing was changed.",
                )
            if found is not None and found != mark:
                raise NotAStore(
                    f"Another store is on its way to {self._new.name}.",
                    hint="Finish that move first, or name another database.",
                )
            tx.run("installation_set", {"name": MOVING, "value": mark})

        self._new.write(work)

    def _is_closed(self, target: str) -> bool:
        """Whether the last step was done before, and only its end is missing."""
        there = self._old.read(lambda tx: _note(tx, MOVED_TO))
        if there is not None and there != target:
            raise IllegalMove(f"This store was moved to {there}.", hint="Move that one.")
        return there is not None

    def _finish(self, tx: Transaction, target: str) -> None:
        """The last pass, while nobody else can write, and the end of the old store."""
        sums = self._bring_over(lambda work: work(tx), is_last=True)
        for table in TABLES:
            found = self._sum_of_new(table)
            if found != sums[table.name]:
                raise StoreCorrupt(
                    f"The table {table.name} has {found.rows} rows in the new store, which are not"
                    f" the {sums[table.name].rows} of the old one.",
                    hint="The old store is as it was. Run the move again.",
                )
        self._new.write(tables.settle)
        tx.run("installation_set", {"name": MOVED_TO, "value": target})
        tx.run("move_close")

    # -- rows

    def _bring_over(self, read: Reader, *, is_last: bool = False) -> dict[str, TableSum]:
        """Make every table of the new store as the old one's; what the old ones hold."""
        return {table.name: self._bring_table(table, read, is_last) for table in TABLES}

    def _bring_table(self, table: Table, read: Reader, is_last: bool) -> TableSum:
        """First all that differs goes, then it comes anew: two rows may have changed places."""
        summing = _Summing()
        different: list[tuple[Key, Key]] = []
        after = _lowest(table)
        while rows := _page(table, after, read):
            summing.add(rows)
            last = _key(table, rows[-1])
            there = list(_rows(table, after, last, self._new.read))
            if there != rows:
                different.append((after, last))
                self._drop(table, there)
            after = last
            self._advance(len(rows))
        while rest := _page(table, after, self._new.read):
            self._drop(table, rest)
        for first, last in different:
            self._put(table, list(_rows(table, first, last, read)), is_last)
        return summing.total()

    def _drop(self, table: Table, rows: list[Row]) -> None:
        gone = [_key(table, row) for row in rows]
        self._new.write(lambda tx: tx.many(f"move_{table.name}_drop", gone))

    def _put(self, table: Table, rows: list[Row], is_last: bool) -> None:
        try:
            self._new.write(lambda tx: table.put(tx, rows))
        except StoreError as problem:
            # Pages that were read one after the other may not fit together while people write: two
            # sessions that were current one after the other. The next pass sees what became of it.
            if is_last or type(problem) is not StoreError:
                raise

    def _sum_of_new(self, table: Table) -> TableSum:
        summing = _Summing()
        after = _lowest(table)
        while rows := _page(table, after, self._new.read):
            summing.add(rows)
            after = _key(table, rows[-1])
        return summing.total()

    def _advance(self, rows: int) -> None:
        self._done += rows
        if self._progress is not None:
            self._progress(min(self._done, self._total), self._total)


class _Summing:
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


def _rows(table: Table, after: Key, last: Key, read: Reader) -> Iterator[Row]:
    """The rows after a key, up to another one. Both databases have keys in the order of bytes."""
    end = tuple(last.values())
    while rows := _page(table, after, read):
        for row in rows:
            if tuple(_key(table, row).values()) > end:
                return
            yield row
        after = _key(table, rows[-1])


def _lowest(table: Table) -> Key:
    return {name: tables.LOWEST[kind] for name, kind in table.key.items()}


def _key(table: Table, row: Row) -> Key:
    return {name: row[table.columns.index(name)] for name in table.key}


def _note(tx: Transaction, name: str) -> str | None:
    row = tx.one("installation_get", {"name": name})
    return None if row is None else row[0]


def _one(tx: Transaction, statement: str, **params: Any) -> Any:
    row = tx.one(statement, params)
    if row is None:
        raise StoreError(f"The store lacks what {statement} asks for.")
    return row[0]
