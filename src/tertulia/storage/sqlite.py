"""SQLite: one file, any number of threads and processes.

Writes are combined. A thread that finds nobody writing leads: it opens a transaction, does its own
work, then the work of all who came meanwhile, commits once, and hands the lead to the first of
those who came during the commit. So a lone caller commits inline, without a hand-off to another
thread, and under load one fsync serves many.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import apsw

from tertulia.errors import NotAStore, StoreError, StoreUnavailable
from tertulia.storage import migrate, statements
from tertulia.storage.base import Params, Row, Transaction
from tertulia.storage.errors_map import translated

T = TypeVar("T")

# More jobs in one commit than this would only make the last of them wait for the first.
_BATCH = 256
_READERS_KEPT = 8
_NO_PARAMS: Params = {}


class SqliteTransaction:
    """Statements by name on one connection."""

    __slots__ = ("_connection", "_sql")

    def __init__(self, connection: apsw.Connection, sql: dict[str, str]) -> None:
        self._connection = connection
        self._sql = sql

    def run(self, statement: str, params: Params = _NO_PARAMS) -> int:
        self._connection.execute(self._sql[statement], params)
        return self._connection.changes()

    def one(self, statement: str, params: Params = _NO_PARAMS) -> Row | None:
        # All rows are fetched, for an unfinished cursor would keep the statement open.
        rows = self._connection.execute(self._sql[statement], params).fetchall()
        return rows[0] if rows else None

    def all(self, statement: str, params: Params = _NO_PARAMS) -> list[Row]:
        return self._connection.execute(self._sql[statement], params).fetchall()

    def many(self, statement: str, rows: Iterable[Params]) -> None:
        self._connection.executemany(self._sql[statement], rows)


class _Job:
    """Work that waits for its commit."""

    __slots__ = ("error", "gate", "leads", "result", "work")

    def __init__(self, work: Callable[[Transaction], Any]) -> None:
        self.work = work
        self.result: Any = None
        self.error: BaseException | None = None
        self.leads = False
        self.gate: Any = None

    def outcome(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.result


class SqliteDatabase:
    """A store in a SQLite file."""

    def __init__(self, path: str, *, safe: bool = True, busy_seconds: float = 30.0) -> None:
        self.path = path
        self._safe = safe
        self._busy_seconds = busy_seconds
        self._sql = statements.load(migrate.DIALECT)
        self._pid = os.getpid()
        self._closed = False
        self._mutex = threading.Lock()
        self._leading = False
        self._waiting: deque[_Job] = deque()
        self._readers: deque[tuple[apsw.Connection, SqliteTransaction]] = deque()
        try:
            _refuse_strangers(path, busy_seconds)
            _create_private(path)
            self._writer = self._connect()
            _switch_to_wal(self._writer, path, busy_seconds)
            self._tx = SqliteTransaction(self._writer, self._sql)
            migrate.bring_up_to_date(self._writer, path)
        except apsw.Error as problem:
            raise translated(problem, path) from problem

    def write(self, work: Callable[[Transaction], T]) -> T:
        self._check_usable()
        job = _Job(work)
        with self._mutex:
            follows = self._leading
            if follows:
                job.gate = threading.Lock()
                job.gate.acquire()
                self._waiting.append(job)
            else:
                self._leading = True
        if follows:
            self._wait(job)
            if not job.leads:
                return job.outcome()  # type: ignore[no-any-return]
        self._lead(job)
        return job.outcome()  # type: ignore[no-any-return]

    def read(self, work: Callable[[Transaction], T]) -> T:
        self._check_usable()
        try:
            connection, tx = self._readers.pop()
        except IndexError:
            connection, tx = self._new_reader()
        try:
            connection.execute("begin")
            try:
                return work(tx)
            finally:
                if connection.in_transaction:
                    connection.execute("rollback")
        except apsw.Error as problem:
            raise translated(problem, self.path) from problem
        finally:
            if len(self._readers) < _READERS_KEPT and not self._closed:
                self._readers.append((connection, tx))
            else:
                connection.close()

    def close(self) -> None:
        with self._mutex:
            if self._closed:
                return
            self._closed = True
        if os.getpid() != self._pid:
            return
        while True:
            with self._mutex:
                if not self._leading:
                    break
            time.sleep(0.001)
        while self._readers:
            self._readers.pop()[0].close()
        self._writer.close()

    # -- whole-file work, for the `store` commands

    def alone(self, work: Callable[[apsw.Connection], T]) -> T:
        """Run `work` on a connection of its own, outside any transaction."""
        self._check_usable()
        try:
            connection = self._connect()
            try:
                return work(connection)
            finally:
                connection.close()
        except apsw.Error as problem:
            raise translated(problem, self.path) from problem

    # -- group commit

    def _lead(self, first: _Job) -> None:
        """Commit `first` together with whoever waits, then pass the lead on."""
        batch = [first]
        try:
            self._commit(batch)
        except BaseException as problem:  # noqa: BLE001 — followers must never wait for ever
            failure = translated(problem, self.path) if isinstance(problem, apsw.Error) else problem
            for job in batch:
                job.error = job.error or failure
        finally:
            self._pass_on()
            for job in batch[1:]:
                job.gate.release()

    def _commit(self, batch: list[_Job]) -> None:
        connection = self._writer
        self._begin()
        try:
            self._run_first(batch[0])
            while len(batch) < _BATCH and (job := self._next_waiting()) is not None:
                batch.append(job)
                self._run_apart(job)
            connection.execute("commit")
        except BaseException:
            # SQLite itself has rolled back after a full disk or an I/O error.
            if connection.in_transaction:
                connection.execute("rollback")
            raise

    def _next_waiting(self) -> _Job | None:
        with self._mutex:
            return self._waiting.popleft() if self._waiting else None

    def _begin(self) -> None:
        self._writer.execute("begin immediate")

    def _run_first(self, job: _Job) -> None:
        """The leader's own work needs no savepoint: if it fails, nothing else was done yet."""
        try:
            job.result = job.work(self._tx)
        except apsw.Error as problem:
            job.error = translated(problem, self.path)
        except BaseException as problem:  # noqa: BLE001 — raised again in the caller
            job.error = problem
        if job.error is not None:
            if self._writer.in_transaction:
                self._writer.execute("rollback")
            self._begin()

    def _run_apart(self, job: _Job) -> None:
        connection = self._writer
        connection.execute("savepoint job")
        try:
            job.result = job.work(self._tx)
        except BaseException as problem:
            if not connection.in_transaction:
                raise  # everything was rolled back, so everyone has failed
            connection.execute("rollback to job")
            job.error = (
                translated(problem, self.path) if isinstance(problem, apsw.Error) else problem
            )
        connection.execute("release job")

    def _wait(self, job: _Job) -> None:
        try:
            job.gate.acquire()
        except BaseException:
            # An interrupt while waiting: leave the queue, or the lead would go to nobody.
            with self._mutex:
                if job in self._waiting:
                    self._waiting.remove(job)
            if job.leads:
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        with self._mutex:
            if not self._waiting:
                self._leading = False
                return
            heir = self._waiting.popleft()
            heir.leads = True
        heir.gate.release()

    # -- connections

    def _connect(self) -> apsw.Connection:
        connection = apsw.Connection(self.path, statementcachesize=200)
        connection.set_busy_handler(_patience(self._busy_seconds))
        connection.execute(f"pragma synchronous = {'full' if self._safe else 'normal'}")
        connection.execute("pragma fullfsync = on")
        # A page that many turns touch is then written back once for all of them.
        connection.execute("pragma wal_autocheckpoint = 4000")
        connection.execute("pragma foreign_keys = off")
        connection.execute("pragma temp_store = memory")
        return connection

    def _new_reader(self) -> tuple[apsw.Connection, SqliteTransaction]:
        try:
            connection = self._connect()
            connection.execute("pragma query_only = on")
        except apsw.Error as problem:
            raise translated(problem, self.path) from problem
        return connection, SqliteTransaction(connection, self._sql)

    def _check_usable(self) -> None:
        if self._closed:
            raise StoreError("The store is closed.", hint="Open it again with tertulia.open(…).")
        if os.getpid() != self._pid:
            raise StoreError(
                "This store was opened before the process forked.",
                hint="Open it again in the new process.",
            )


def _refuse_strangers(path: str, busy_seconds: float) -> None:
    """Look at an existing file without changing it; raise if it is not ours or too new."""
    if path == ":memory:":
        raise StoreUnavailable(
            "A store needs a file: ':memory:' would be another one for every thread.",
            hint="Use a file in a temporary folder.",
        )
    if os.path.isdir(path):
        raise NotAStore(f"{path} is a folder.", hint="Name a file in it, such as talk.db.")
    if not os.path.exists(path) or os.path.getsize(path) == 0:
        return
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        connection.set_busy_handler(_patience(busy_seconds))
        application = connection.pragma("application_id")
        is_empty = not connection.execute("select 1 from sqlite_schema limit 1").fetchall()
        if application != migrate.APPLICATION_ID and not is_empty:
            raise NotAStore(
                f"{path} is a SQLite database of another program.",
                hint="Name another file; this one was not changed. To take its conversations over, "
                "use: tertulia import.",
                where=path,
            )
        if not is_empty:
            migrate.refuse_newer(connection, path)
    finally:
        connection.close()


def _create_private(path: str) -> None:
    """Conversations are nobody else's: a new file is its owner's alone, and its -wal like it."""
    with contextlib.suppress(OSError):  # what is wrong with the place, SQLite says better
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


def _switch_to_wal(connection: apsw.Connection, path: str, busy_seconds: float) -> None:
    """The switch ignores the busy handler, so whoever comes at the same moment tries again."""
    deadline = time.monotonic() + busy_seconds
    while True:
        try:
            if connection.pragma("journal_mode", "wal") == "wal":
                return
        except apsw.BusyError:
            if time.monotonic() > deadline:
                raise
        else:
            raise StoreUnavailable(
                f"{path} lies where SQLite cannot share memory between programs.",
                hint="Keep the store on a local disk, not on a network file system.",
            )
        time.sleep(random.uniform(0.001, 0.01))  # noqa: S311 — a pause, no secret


def _patience(seconds: float) -> Callable[[int], bool]:
    """Wait for other processes in short random pauses; SQLite's own grow, and starve who waits."""
    started = 0.0

    def wait(tries: int) -> bool:
        nonlocal started
        now = time.monotonic()
        if tries == 0:
            started = now
        if now - started > seconds:
            return False
        time.sleep(random.uniform(0.0002, 0.002))  # noqa: S311 — a pause, no secret
        return True

    return wait
