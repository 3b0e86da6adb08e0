"""SQLite: one file, any number of threads and processes.

Writes are combined. A thread that finds nobody writing leads: it opens a transaction, does its own
work, then the work of all who came meanwhile, commits once, and hands the lead to the first of
those who came during the commit. So a lone caller commits inline, without a hand-off to another
thread, and under load one fsync serves many.

An interrupt (Ctrl-C) can be raised after any call that Python makes. So who leads, and for whom, is
written down before anything is done; `write` is the one place that sees every interrupt, and gives
the lead, the transaction and the followers back from what is written there.
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

from tertulia.core.text.search_terms import Phrase
from tertulia.errors import ConfigError, IllegalMove, NotAStore, StoreError, StoreUnavailable
from tertulia.storage import statements
from tertulia.storage.base import Params, Progress, Row, Transaction
from tertulia.storage.notify import notifier_of
from tertulia.storage.sqlite import (
    maintenance,
    migrate,
)
from tertulia.storage.sqlite.errors import (
    FOREIGN,
    translate_errors,
)

T = TypeVar("T")

# More jobs in one commit than this would only make the last of them wait for the first.
_BATCH = 256
_READERS_KEPT = 8
_KEPT_KILOBYTES = 16_000
_LONGEST_PAUSE = 0.025  # seconds between two tries to get at a file that others use
_LOOK_SECONDS = 0.05  # so soon a process sees that another one has written
_NO_PARAMS: Params = {}
_HEADER = 100  # bytes that every SQLite file begins with
_PAGE = 4096  # bytes that SQLite writes at once
_CREATING = threading.Lock()


class SqliteTransaction:
    """Statements by name on one connection."""

    __slots__ = ("_connection", "_sql")

    def __init__(self, connection: apsw.Connection, sql: dict[str, str]) -> None:
        self._connection = connection
        self._sql = sql

    def run(self, statement: str, params: Params = _NO_PARAMS) -> None:
        self._connection.execute(self._sql[statement], params)

    def changed(self, statement: str, params: Params = _NO_PARAMS) -> int:
        self._connection.execute(self._sql[statement], params)
        return self._connection.changes()

    def one(self, statement: str, params: Params = _NO_PARAMS) -> Row | None:
        # All rows are fetched, for an unfinished cursor would keep the statement open.
        rows = self._connection.execute(self._sql[statement], params).fetchall()
        return rows[0] if rows else None

    def all(self, statement: str, params: Params = _NO_PARAMS) -> list[Row]:
        return self._connection.execute(self._sql[statement], params).fetchall()

    def many(self, statement: str, rows: Iterable[Params | Row]) -> None:
        self._connection.executemany(self._sql[statement], rows)

    def hold(self, name: str, *, shared: bool = False) -> None:
        return  # whoever writes has everything

    def search_entry(self, text: str) -> Any:
        return text

    def search_question(self, phrases: list[Phrase]) -> str:
        """In FTS5 nothing in quotes is an operator."""
        return " ".join(
            f'"{words}"*' if is_prefix else f'"{words}"' for words, is_prefix in phrases
        )


class _Job:
    """Work that waits for its commit; the one that leads also knows whom it does it for."""

    __slots__ = (
        "batch",
        "commits",
        "error",
        "gate",
        "is_abandoned",
        "leads",
        "result",
        "since",
        "thread",
        "work",
    )

    def __init__(self, work: Callable[[Transaction], Any]) -> None:
        self.work = work
        self.thread = threading.get_ident()
        self.result: Any = None
        self.error: BaseException | None = None
        self.gate: Any = None
        self.since: float | None = None
        self.batch: list[_Job] = []
        self.commits = False
        self.is_abandoned = False
        self.leads = False  # it is never done in the lead of another

    def outcome(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.result


class SqliteDatabase:
    """A store in a SQLite file."""

    one_writer = True

    def __init__(self, path: str, *, safe: bool = True, busy_seconds: float = 30.0) -> None:
        self.path = path
        self._safe = safe
        self._busy_seconds = busy_seconds
        self._sql = statements.load(migrate.DIALECT)
        self._pid = os.getpid()
        self._closed = False
        self._mutex = threading.Lock()
        self._leader: _Job | None = None
        self._commit_thread: int | None = None  # the thread whose calls share the transaction
        self._notifications: set[str] = set()
        self._waiting: deque[_Job] = deque()
        self._reading: dict[object, int] = {}
        self._readers: deque[tuple[apsw.Connection, SqliteTransaction]] = deque()
        try:
            _refuse_strangers(path, busy_seconds)
            _create_private(path)
            self._writer = self._connect(self._waits_since)
            # The tables of a busy gateway have more new pages than SQLite keeps by itself.
            self._writer.execute(f"pragma cache_size = -{_KEPT_KILOBYTES}")
            self._tx = SqliteTransaction(self._writer, self._sql)
            try:
                _refuse_read_only(self._writer, path)
                _switch_to_wal(self._writer, path, busy_seconds)
                # While it waits for another program to do it, it looks whether that is done.
                self._writer.set_busy_handler(None)
                migrate.bring_up_to_date(self._writer, path, _patience(busy_seconds))
                self._writer.set_busy_handler(_patience(busy_seconds, self._waits_since))
            except BaseException:
                self._writer.close()  # whoever keeps the error must not keep the file
                raise
        except FOREIGN as problem:
            raise translate_errors(problem, path) from problem
        except ValueError as problem:
            raise ConfigError(
                f"{path!r} is no file name.", hint="Give a path, as talk.db.", field="where"
            ) from problem
        self._notifier = notifier_of(self.identity)

    def write(self, work: Callable[[Transaction], T], *, lane: str | None = None) -> T:
        if self._commit_thread == threading.get_ident():
            return self._run_within(work)
        return self._write(_Job(work))  # type: ignore[no-any-return]

    def _write(self, job: _Job) -> Any:
        self._check_usable()  # there is one lane: the file
        try:
            with self._mutex:
                self._check_usable()
                if self._leader is None:
                    self._leader = job
                else:
                    self._join_queue(job)
            if self._leader is not job:
                job.gate.acquire()
            if self._leader is job:
                self._lead(job)
        except BaseException:
            self._withdraw(job)
            raise
        return job.outcome()

    def in_one_commit(self, calls: Callable[[], None]) -> None:
        """Whoever follows is run in the leader's thread, and again after an interrupt: calls that
        remember what they did must be run in their own, and once. So they lead."""
        notifications: set[str] = set()

        def joined(tx: Transaction) -> None:
            self._commit_thread, self._notifications = threading.get_ident(), notifications
            try:
                calls()
            finally:
                self._commit_thread = None
            self._check_within()

        job = _Job(joined)
        job.leads = True
        self._write(job)
        for channel in notifications:
            self._notifier.notify(channel)

    def exclusive(self, work: Callable[[Transaction], T]) -> T:
        return self.write(work)

    def read(self, work: Callable[[Transaction], T]) -> T:
        if self._commit_thread == threading.get_ident():
            return self._read_within(work)
        ticket = object()
        reader = None
        try:
            # First said, then asked whether the store is closed; `close` does it the other way.
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
        with self._mutex:
            if self._closed:
                return
            self._refuse_inside()
            self._closed = True
        while self._leader is not None or self._reading:
            time.sleep(0.001)
        try:
            while self._readers:
                self._readers.pop()[0].close()
            self._writer.close()
        except FOREIGN as problem:
            raise translate_errors(problem, self.path) from problem

    def notify(self, channel: str) -> None:
        if self._commit_thread == threading.get_ident():
            self._notifications.add(channel)  # whoever is woken before the commit finds nothing
        else:
            self._notifier.notify(channel)

    def notifications(self, channel: str) -> int:
        return self._notifier.notifications(channel)

    def wait(self, channel: str, since: int, seconds: float) -> None:
        """Another process cannot ring here, but SQLite tells whether one has written."""
        self._check_usable()
        deadline = time.monotonic() + seconds
        try:
            reader = self._take_reader()
            try:
                before = reader[0].pragma("data_version")
                while (left := deadline - time.monotonic()) > 0 and not self._closed:
                    if self._notifier.wait(channel, since, min(left, _LOOK_SECONDS)):
                        return
                    if reader[0].pragma("data_version") != before:
                        return
            finally:
                self._put_back(*reader)
        except FOREIGN as problem:
            raise translate_errors(problem, self.path) from problem

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def name(self) -> str:
        return self.path

    @property
    def identity(self) -> str:
        return os.path.realpath(self.path)

    def check(self) -> list[str]:
        return maintenance.check(self)

    def backup(self, target: str, *, progress: Progress | None = None) -> None:
        maintenance.backup(self, target, progress=progress)

    def vacuum(self) -> tuple[int, int]:
        return maintenance.vacuum(self)

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
        except FOREIGN as problem:
            raise translate_errors(problem, self.path) from problem

    # -- group commit

    def _waits_since(self) -> float | None:
        return None if self._leader is None else self._leader.since

    def _join_queue(self, job: _Job) -> None:
        job.gate = threading.Lock()
        job.gate.acquire()
        job.since = time.monotonic()
        self._waiting.append(job)

    def _lead(self, first: _Job) -> None:
        """Commit `first` together with whoever waits, then pass the lead on."""
        first.batch = [first]
        try:
            self._commit(first)
        except Exception as problem:  # noqa: BLE001 — followers must never wait for ever
            failure = (
                translate_errors(problem, self.path) if isinstance(problem, FOREIGN) else problem
            )
            for job in first.batch:
                job.error = job.error or failure
        self._pass_on(first)
        _wake(first.batch)
        # It holds itself there, and with it all that was written: garbage that only Python's
        # collector would find, while everybody waits.
        first.batch = []

    def _commit(self, first: _Job) -> None:
        connection = self._writer
        try:
            self._begin()
            self._run_first(first)
            while len(first.batch) < _BATCH and (job := self._take_next(first)) is not None:
                self._run_apart(job)
            first.commits = True
            connection.execute("commit")
        except Exception:
            first.commits = False  # before anything that an interrupt could prevent
            # SQLite itself has rolled back after a full disk or an I/O error.
            if connection.in_transaction:
                connection.execute("rollback")
            raise

    def _take_next(self, leader: _Job) -> _Job | None:
        with self._mutex:
            while self._waiting:
                job = self._waiting[0]
                if job.leads and job is not leader:
                    return None
                if job is not leader:  # who inherits the lead still stands in the queue
                    leader.batch.append(job)
                self._waiting.popleft()
                if job is not leader:
                    return job
            return None

    def _begin(self) -> None:
        self._writer.execute("begin immediate")

    def _run_first(self, job: _Job) -> None:
        """The leader's own work needs no savepoint: if it fails, nothing else was done yet."""
        try:
            job.result = job.work(self._tx)
        except FOREIGN as problem:
            job.error = translate_errors(problem, self.path)
        except Exception as problem:  # noqa: BLE001 — raised again in the caller
            job.error = problem
        if job.error is not None:
            if self._writer.in_transaction:
                self._writer.execute("rollback")
            self._begin()

    def _run_within(self, work: Callable[[Transaction], T]) -> T:
        """One of the calls that share a transaction: if it fails, the others do not."""
        self._check_within()
        connection = self._writer
        connection.execute("savepoint call")
        try:
            found = work(self._tx)
        except FOREIGN as problem:
            self._take_back()
            raise translate_errors(problem, self.path) from problem
        except BaseException:
            self._take_back()
            raise
        connection.execute("release call")
        return found

    def _read_within(self, work: Callable[[Transaction], T]) -> T:
        """A call sees what it has written itself, and fails with it if that is not stored."""
        self._check_within()
        try:
            return work(self._tx)
        except FOREIGN as problem:
            raise translate_errors(problem, self.path) from problem

    def _check_within(self) -> None:
        if not self._writer.in_transaction:
            raise StoreUnavailable(
                "SQLite took back everything that was to be stored together.",
                hint="Try again; what it could not do was told to the call that failed first.",
            )

    def _take_back(self) -> None:
        if self._writer.in_transaction:  # else SQLite has rolled everything back
            self._writer.execute("rollback to call")
            self._writer.execute("release call")

    def _run_apart(self, job: _Job) -> None:
        connection = self._writer
        connection.execute("savepoint job")
        try:
            job.result = job.work(self._tx)
        except Exception as problem:
            if not connection.in_transaction:
                raise  # everything was rolled back, so everyone has failed
            connection.execute("rollback to job")
            job.error = (
                translate_errors(problem, self.path) if isinstance(problem, FOREIGN) else problem
            )
        connection.execute("release job")

    def _pass_on(self, leader: _Job) -> None:
        with self._mutex:
            if self._waiting and self._waiting[0] is leader:
                self._waiting.popleft()
            heir = self._waiting[0] if self._waiting else None
            # No interrupt can come between these two: Python looks for one after a call only.
            self._leader = heir
            if heir is not None:
                heir.gate.release()

    def _withdraw(self, job: _Job) -> None:
        """Leave nothing of an interrupted call behind: no lead, no transaction, nobody waiting."""
        with self._mutex:
            job.is_abandoned = True
            if job in self._waiting:
                self._waiting.remove(job)
            leads = self._leader is job
        if leads:
            is_open = self._writer.in_transaction
            if is_open:
                self._writer.execute("rollback")
            if is_open or not job.commits:
                self._requeue(job)
            self._pass_on(job)
        _wake(job.batch)

    def _requeue(self, leader: _Job) -> None:
        """Nothing was stored for the followers, so they run again under another lead."""
        with self._mutex:
            again = [
                job for job in leader.batch[1:] if not job.is_abandoned and job not in self._waiting
            ]
            for job in again:
                job.result = job.error = None
            self._waiting.extendleft(reversed(again))
            leader.batch = []

    # -- connections

    def _connect(self, since: Callable[[], float | None] = lambda: None) -> apsw.Connection:
        connection = apsw.Connection(self.path, statementcachesize=200)
        connection.set_busy_handler(_patience(self._busy_seconds, since))
        connection.execute(f"pragma synchronous = {'full' if self._safe else 'normal'}")
        connection.execute("pragma fullfsync = on")
        # A page that many turns touch is then written back once for all of them.
        connection.execute("pragma wal_autocheckpoint = 4000")
        # Plans do not depend on what is bound: else a statement that a partial index serves would
        # be planned anew each time it runs.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        connection.execute("pragma foreign_keys = off")
        connection.execute("pragma temp_store = memory")
        # What is deleted is overwritten: also in pages that only the next growth would reuse.
        connection.execute("pragma secure_delete = on")
        return connection

    def _take_reader(self) -> tuple[apsw.Connection, SqliteTransaction]:
        try:
            return self._readers.pop()
        except IndexError:
            connection = self._connect()
            connection.execute("pragma query_only = on")
            return connection, SqliteTransaction(connection, self._sql)

    def _put_back(self, connection: apsw.Connection, tx: SqliteTransaction) -> None:
        if connection.in_transaction:
            connection.execute("rollback")
        if len(self._readers) < _READERS_KEPT and not self._closed:
            self._readers.append((connection, tx))
        else:
            connection.close()

    def _refuse_inside(self) -> None:
        """A signal handler that closes the store it interrupted would wait for itself."""
        here = threading.get_ident()
        if here in self._reading.values() or (self._leader and self._leader.thread == here):
            raise IllegalMove(
                "The store cannot be closed from within one of its calls.",
                hint="Close it when the call is over; from a signal handler, raise SystemExit.",
            )

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
    if os.path.getsize(path) < _HEADER:  # SQLite would take a file of one byte for a new one
        raise NotAStore(
            f"{path} is no database.", hint="Name another file; this one was not changed."
        )
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        connection.set_busy_handler(_patience(busy_seconds))
        if _is_half_made(connection, path):
            return
        # In this order: whoever makes the store at this moment commits both together.
        is_empty = not connection.execute("select 1 from sqlite_schema limit 1").fetchall()
        application = connection.pragma("application_id")
        if application != migrate.APPLICATION_ID and (application or not is_empty):
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


def _is_half_made(connection: apsw.Connection, path: str) -> bool:
    """Whether a program was killed while it made the file, which then can only be made anew.

    SQLite needs to write before it can read what was left in the middle of a change. A store is so
    only while it is made, and then is one page long; a longer file is another program's.
    """
    try:
        connection.pragma("schema_version")
    except apsw.ReadOnlyError as problem:
        code: int = getattr(problem, "extendedresult", 0)  # apsw's own types do not know it
        if code != apsw.SQLITE_READONLY_ROLLBACK:
            raise
        if os.path.getsize(path) > _PAGE:
            raise NotAStore(
                f"{path} was left by another program in the middle of a change.",
                hint="Name another file; this one was not changed.",
                where=path,
            ) from problem
        return True
    return False


def _refuse_read_only(connection: apsw.Connection, path: str) -> None:
    """SQLite opens what it may not write for reading; a store that cannot store is no use."""
    if connection.readonly("main"):
        raise StoreUnavailable(
            f"The store may only be read ({path}).",
            hint="Give this user the right to write to the file and to its folder.",
            where=path,
        )


def _create_private(path: str) -> None:
    """Conversations are nobody else's: a new file is its owner's alone, and its -wal like it.

    A file that is there is not touched: closing it here would drop every lock that this process
    has on it. For the same reason nobody in this process goes on to open it meanwhile.
    """
    with _CREATING, contextlib.suppress(OSError):  # what is wrong with it, SQLite says better
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


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


def _patience(
    seconds: float, since: Callable[[], float | None] = lambda: None
) -> Callable[[int], bool]:
    """Wait for other processes in short random pauses; SQLite's own grow, and starve who waits.

    Ours grow too, but little: dozens who ask all the time leave no processor to the one they wait
    for.

    `since` tells when whoever waits began to, if that was earlier: a caller who stood in a queue
    behind one that waited in vain does not begin anew.
    """
    started = 0.0

    def wait(tries: int) -> bool:
        nonlocal started
        now = time.monotonic()
        if tries == 0:
            started = since() or now
        waited = now - started
        if waited > seconds:
            return False
        longest = min(_LONGEST_PAUSE, 0.002 + waited / 20)
        time.sleep(random.uniform(0.0002, longest))  # noqa: S311 — a pause, no secret
        return True

    return wait


def _wake(batch: list[_Job]) -> None:
    """Their work is done; woken twice, after an interrupt in here, does no harm."""
    for job in batch[1:]:
        if job.gate.locked():
            job.gate.release()
