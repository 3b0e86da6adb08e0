"""SQLite: one file, any number of threads and processes.

Writers share commits (see `group_commit`). Each reader has a connection of its own.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import apsw

from tertulia.errors import ConfigError
from tertulia.storage import statements
from tertulia.storage.base import Params, Progress, Row, Step, Transaction
from tertulia.storage.handle import DatabaseHandle
from tertulia.storage.sqlite import maintenance, migrate
from tertulia.storage.sqlite.errors import FOREIGN, translate_errors
from tertulia.storage.sqlite.group_commit import GroupCommit, Job
from tertulia.storage.sqlite.open import OpenFile, busy_handler, connect, open_writer
from tertulia.storage.sqlite.transaction import (
    BoundStatements,
    RecordedTransaction,
    SqliteTransaction,
)

T = TypeVar("T")

_IDLE_READERS = 8  # at most so many unused connections stay open
# A sum of usage by person reads a page for each of a thousand people. SQLite would cache 2 MB.
_READER_CACHE_KILOBYTES = 8_000
_POLL_SECONDS = 0.05  # within this time a process notices that another one has written
_NO_PARAMS: Params = {}


class SqliteDatabase(DatabaseHandle):
    """A store in a SQLite file."""

    has_one_writer = True

    def __init__(self, path: str, *, safe: bool = True, busy_seconds: float = 30.0) -> None:
        self.path = path
        self._safe = safe
        self._busy_seconds = busy_seconds
        sql = statements.load(migrate.DIALECT)
        self._statements = BoundStatements(sql)
        writer_statements = BoundStatements(sql)
        self._reading: dict[object, int] = {}
        self._watcher: apsw.Connection | None = None  # sees the commits of all others
        self._readers: deque[tuple[apsw.Connection, SqliteTransaction]] = deque()
        try:
            self._writer = open_writer(path, is_safe=safe, busy_seconds=busy_seconds)
        except FOREIGN as problem:
            raise translate_errors(problem, path) from problem
        except ValueError as problem:
            raise ConfigError(
                f"{path!r} is not a valid file name.",
                hint="Give a path, such as talk.db.",
                field="where",
            ) from problem
        self.file = OpenFile(path)
        super().__init__(path, os.path.realpath(path))
        self._group = GroupCommit(
            self._writer,
            SqliteTransaction(self._writer, writer_statements),
            RecordedTransaction(self._writer, writer_statements),
            path,
            self._check_usable,
            self._check_open,
            self.file.commit_check(self._writer),
        )
        self._writer.set_busy_handler(busy_handler(busy_seconds, self._group.waiting_since))

    def write(self, work: Callable[[Transaction], T], *, lane: str | None = None) -> T:
        # `lane` is ignored: the file has one writer at a time.
        if self._is_shared:
            return self._group.write_shared(work)
        return self._group.submit(Job(work))  # type: ignore[no-any-return]

    def attempt(self, steps: Sequence[Step], *, lanes: Sequence[str]) -> list[list[Row]] | None:
        if self._is_shared and self._statements.is_atomic(steps):
            return self._group.run_shared(lambda tx: tx.together(steps))
        return self.write(lambda tx: tx.together(steps))

    def query(self, statement: str, params: Params = _NO_PARAMS) -> list[Row]:
        return self.read(lambda tx: tx.all(statement, params))

    def in_one_commit(self, calls: Callable[[], None]) -> None:
        for channel in self._group.run_calls(calls):
            self._notifier.notify(channel)

    def exclusive(self, work: Callable[[Transaction], T]) -> T:
        return self.write(work)

    def read(self, work: Callable[[Transaction], T]) -> T:
        if self._is_shared:
            return self._group.run_shared(work)
        ticket = object()
        reader = None
        try:
            # Register first, then check whether the store is closed; `close` does the reverse.
            self._reading[ticket] = threading.get_ident()
            self._check_usable()
            reader = self._take_reader()
            reader[0].execute("begin")
            return work(reader[1])
        except FOREIGN as problem:
            raise translate_errors(problem, self.path) from problem
        finally:
            try:
                if reader is not None:
                    self._put_back(*reader)
            finally:
                self._reading.pop(ticket, None)

    def close(self) -> None:
        if os.getpid() != self._pid:
            self._closed = True
            return
        with self._group.mutex:
            if self._closed:
                return
            leader = self._group.leader
            writing = () if leader is None else (leader.thread,)
            self._refuse_inside([*writing, *self._reading.values()])
            self._closed = True
        while self._group.leader is not None or self._reading:
            time.sleep(0.001)
        try:
            while self._readers:
                self._readers.pop()[0].close()
            with self._changes_lock:
                if self._watcher is not None:
                    self._watcher.close()
            self._writer.close()
        except FOREIGN as problem:
            raise translate_errors(problem, self.path) from problem

    def _commit_state(self) -> tuple[Any, ...]:
        """Return SQLite's `data_version`, and how many own writes were committed and begun.

        The version can be compared on one and the same connection only. The caller has the lock of
        the changes.
        """
        self._check_usable()
        try:
            if self._watcher is None:
                self._watcher = self._connect()
            committed = self._group.committed
            ((version,),) = self._watcher.execute(self._statements["commit_state"][0]).fetchall()
        except FOREIGN as problem:
            raise translate_errors(problem, self.path) from problem
        return version, committed, self._group.begun

    def _is_one_commit(self, before: tuple[Any, ...], after: tuple[Any, ...]) -> bool:
        return bool(before[1] == before[2] and after[2] == before[2] + 1)

    def notify(self, channel: str) -> None:
        if self._is_shared:
            # A waiter that is woken before the commit would find nothing.
            self._group.shared_channels.add(channel)
        else:
            self._notifier.notify(channel)

    def wait(self, channel: str, since: int, seconds: float) -> None:
        """Wait for a notification of this process, or for a commit of another process.

        Another process cannot notify here, but SQLite's `data_version` changes when it commits.
        """
        self._check_usable()
        deadline = time.monotonic() + seconds
        try:
            reader = self._take_reader()
            try:
                before = reader[0].pragma("data_version")
                while (left := deadline - time.monotonic()) > 0 and not self._closed:
                    if self._notifier.wait(channel, since, min(left, _POLL_SECONDS)):
                        return
                    if reader[0].pragma("data_version") != before:
                        return
            finally:
                self._put_back(*reader)
        except FOREIGN as problem:
            raise translate_errors(problem, self.path) from problem

    def has_space(self, size: int) -> bool:
        try:
            return shutil.disk_usage(os.path.dirname(self.file.path)).free >= size
        except OSError:
            return True

    def check(self) -> list[str]:
        return maintenance.check(self)

    def backup(self, target: str, *, progress: Progress | None = None) -> None:
        maintenance.backup(self, target, progress=progress)

    def vacuum(self) -> tuple[int, int]:
        return maintenance.vacuum(self)

    # -- whole-file work, for the `store` commands

    def run_on_own_connection(self, work: Callable[[apsw.Connection], T]) -> T:
        """Run `work` on a connection of its own, outside any transaction."""
        self._check_usable()
        try:
            connection = self._connect()
            try:
                return work(connection)
            finally:
                connection.close()
        except FOREIGN as problem:
            raise translate_errors(problem, self.path) from problem

    @property
    def _is_shared(self) -> bool:
        """True if this thread runs calls that share a transaction."""
        return self._group.shared_thread == threading.get_ident()

    # -- connections

    def _connect(self) -> apsw.Connection:
        self.file.check()  # else SQLite would create an empty file, or read another store
        return connect(self.file.path, is_safe=self._safe, busy_seconds=self._busy_seconds)

    def _take_reader(self) -> tuple[apsw.Connection, SqliteTransaction]:
        try:
            return self._readers.pop()
        except IndexError:
            connection = self._connect()
            connection.execute(
                f"pragma query_only = on; pragma cache_size = -{_READER_CACHE_KILOBYTES}"
            )
            return connection, SqliteTransaction(connection, self._statements)

    def _put_back(self, connection: apsw.Connection, tx: SqliteTransaction) -> None:
        if connection.in_transaction:
            connection.execute("rollback")
        if len(self._readers) < _IDLE_READERS and not self._closed:
            self._readers.append((connection, tx))
        else:
            connection.close()
