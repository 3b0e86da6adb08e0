"""PostgreSQL: many processes on many machines share one set of conversations.

A statement whose result is not needed is sent together with the next query or with the commit (see
`batch.py`), because round trips to the server cost most.

Statements that need nothing of each other's results (`attempt`) are sent together with the locks of
their lanes, in one round trip. PostgreSQL takes everything up to the end of a pipeline as one
transaction. One statement that takes the lock of its lane itself (decision 0060), and one that only
reads (`query`), need no transaction around them. Under load, statements of the first kind share
transactions (see `shared_transactions.py`).

Work that names its lane (a conversation, a chat) waits for other work of the same lane by an
advisory lock on its name, so its statements see what was committed last (decision 0008). All other
writes run serializable: the database detects two writes that could not have run one after the
other, and one of them is run again. (With everything serializable, four nodes did less than one:
rows on the same page make conflicts between writes that have nothing in common.) If the connection
breaks during a commit, the outcome is not guessed: the transaction id was read when the transaction
began, and the database is asked for its status.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache, partial
from typing import Any, TypeVar

import psycopg
from psycopg import errors as pg_errors
from psycopg.adapt import AdaptersMap
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import tuple_row
from psycopg.types.numeric import Int8Dumper
from psycopg_pool import PoolTimeout

from tertulia.core.backoff import JITTER
from tertulia.errors import ConfigError, IllegalMove, StoreError, StoreFull, StoreUnavailable
from tertulia.storage import inspection, statements
from tertulia.storage.base import Params, Progress, Row, StatementLost, Step, Transaction
from tertulia.storage.handle import DatabaseHandle
from tertulia.storage.postgres import migrate
from tertulia.storage.postgres.batch import Batch, BatchConnection
from tertulia.storage.postgres.connection_pool import MAX_CONNECTIONS, Connections
from tertulia.storage.postgres.errors import FOREIGN, translate_errors
from tertulia.storage.postgres.notify import Listener, Sender
from tertulia.storage.postgres.shared_transactions import SharedTransactions, Statement
from tertulia.storage.postgres.transaction import (
    COMMIT,
    NO_LOCKS,
    NO_PARAMS,
    Locks,
    NeedsLocks,
    PostgresTransaction,
    ReadGoesOn,
    ShortRead,
    lock_id,
)
from tertulia.storage.statements import Query

T = TypeVar("T")
log = logging.getLogger("tertulia.storage")

_BEGIN_LANE = Query(b"begin isolation level read committed")
_BEGIN_SERIALIZABLE = Query(b"begin isolation level serializable")
_SPACE_SECONDS = 5.0
_MAX_SPACE_BYTES = 64 << 20  # a larger file would make the server busy, or fill its disk
# Sorts more than fits into the memory that the statement may use.
_SORT_IN_FILE = "select count(distinct repeat(md5(n::text), 32)) from generate_series(1, %s) as n"
_SORTED_BYTES = 32 * 32  # in each row
_BEGIN_READ = Query(b"begin isolation level repeatable read, read only")
_GENERIC_PLANS = "set_config('plan_cache_mode', 'force_generic_plan', true)"
_ROLLBACK = Query(b"rollback")
_RETRYABLE = (
    pg_errors.SerializationFailure,
    pg_errors.DeadlockDetected,
    pg_errors.InvalidSqlStatementName,  # the next attempt prepares the statement again
)
_DUPLICATE = (pg_errors.UniqueViolation, pg_errors.ExclusionViolation)
_DUPLICATE_RETRIES = 5
_APPLICATION_NAME = "tertulia"
_TERMINATE_STALLED = f"""select pg_terminate_backend(pid) from pg_stat_activity
    where datname = current_database() and usename = current_user
        and application_name = '{_APPLICATION_NAME}' and xact_start is not null
        and state = 'active' and wait_event = 'ClientRead'
        and state_change < now() - make_interval(secs => %s)"""
# Every number is sent as a bigint. By default its type follows its size, and a statement would be
# prepared once for each combination of sizes.
_TYPES = AdaptersMap(psycopg.adapters)
_TYPES.register_dumper(int, Int8Dumper)
# The parameter of a statement that takes the lock of its lane itself (`part_takes_lane`).
_LANE = "lane"
# Milliseconds for which such a statement waits for a lock: those that share its transaction, and
# those that wait for the next one, wait too. The general path then waits as long as it has to.
_SHARED_LOCK_TIMEOUT = "100"
# A marker in statements that read a session. Work in the session's lane locks the row with it, so
# that this work and work outside of the lane (a reset, for example) wait for each other.
_ROW_LOCK = b"/* row lock */"


class PostgresDatabase(DatabaseHandle):
    """A store in a PostgreSQL database."""

    has_one_writer = False

    def __init__(
        self,
        dsn: str,
        *,
        safe: bool = True,
        busy_seconds: float = 30.0,
        idle_seconds: float = 60.0,
    ) -> None:
        super().__init__(public_name(dsn), dsn)
        self._dsn = dsn
        self._queries = statements.load_numbered(migrate.DIALECT)
        self._queries_in_lane = _queries_in_lane()
        self._running: dict[object, int] = {}  # the thread of each call
        self._closing = threading.Lock()
        self._busy_seconds = busy_seconds
        self._idle_seconds = idle_seconds
        limits = _limits(safe, idle_seconds)
        self._limits = ", ".join(limits)
        # Statements that are sent at once leave no transaction idle. They look up what they need by
        # its keys: to plan each five times for its values, on each connection, would be no use.
        self._attempt_limits = ", ".join([*limits[1:], _GENERIC_PLANS])
        self._lane_params = {"lock_timeout": _SHARED_LOCK_TIMEOUT, "is_safe": safe}
        # When space was looked for, of which size, and whether there is enough.
        self._space = -_SPACE_SECONDS, 0, True
        self._listener = Listener(dsn, self._notifier)
        try:
            with self._connect() as connection:
                migrate.apply_migrations(connection, self._name)
        except psycopg.Error as problem:
            raise translate_errors(problem, self._name) from problem
        self._connections = Connections(dsn, self._connect_options(), busy_seconds)
        self._shared = SharedTransactions(self._run_together, MAX_CONNECTIONS)
        self._sender = Sender(
            self._connections.borrowed, lambda: self._listener.pid, (*FOREIGN, StoreError)
        )

    # -- the promises of `storage.base`

    def write(self, work: Callable[[Transaction], T], *, lane: str | None = None) -> T:
        with self._running_call():
            return self._write(work, lane)

    def attempt(self, steps: Sequence[Step], *, lanes: Sequence[str]) -> list[list[Row]] | None:
        call = object()
        try:
            self._begin_call(call)
            statement = self._own_lane_statement(steps, lanes)
            if statement is not None:
                rows = self._shared.submit(statement)
                return None if rows is None else [rows]
            connection = self._connections.take()
            try:
                return self._attempt(connection, steps, lanes)
            finally:
                self._connections.put_back(connection)
        except PoolTimeout as problem:
            raise translate_errors(problem, self._name) from problem
        finally:
            self._running.pop(call, None)

    def in_one_commit(self, calls: Callable[[], None]) -> None:
        """Run the calls, each in its own transaction.

        A shared one would hold the locks of all their lanes until its end.
        """
        calls()

    def exclusive(self, work: Callable[[Transaction], T]) -> T:
        """Lock all tables, then run `work`.

        Not in a snapshot: each statement must see what was committed before the lock.
        """
        deadline = time.monotonic() + self._busy_seconds
        with self._running_call():
            while True:
                try:
                    with self._connect() as connection, connection.transaction():
                        tx = PostgresTransaction(connection.batch, self._queries)
                        tx.run("lock_sessions_table")
                        tx.run("lock_other_tables")
                        result = work(tx)
                        tx.receive()
                        return result
                except _RETRYABLE as problem:
                    # A deadlock with a transaction that had one of the tables and wanted another.
                    # That transaction has gone on, so try again.
                    if time.monotonic() > deadline:
                        raise translate_errors(problem, self._name) from problem
                except FOREIGN as problem:
                    raise translate_errors(problem, self._name) from problem

    def read(self, work: Callable[[Transaction], T]) -> T:
        call = object()
        try:
            self._begin_call(call)
            return self._read(partial(self._read_once, work))
        finally:
            self._running.pop(call, None)

    def query(self, statement: str, params: Params = NO_PARAMS) -> list[Row]:
        call = object()
        try:
            self._begin_call(call)
            return self._read(partial(self._query_once, statement, params))
        finally:
            self._running.pop(call, None)

    def close(self) -> None:
        if os.getpid() != self._pid:
            self._closed = True
            return
        with self._closing:
            if self._closed:
                return
            self._refuse_inside(self._running.values())
            self._closed = True
        while self._running:
            time.sleep(0.001)
        self._sender.stop()
        self._listener.stop()
        self._connections.close()

    def _write(self, work: Callable[[Transaction], T], lane: str | None) -> T:
        deadline = time.monotonic() + self._busy_seconds
        attempts = 0
        locks = NO_LOCKS if lane is None else {lock_id(lane): False}
        while True:
            try:
                return self._write_once(work, locks, is_in_lane=lane is not None)
            except NeedsLocks as needed:
                locks = needed.locks
                continue
            except _RETRYABLE as problem:
                if time.monotonic() > deadline:
                    raise translate_errors(problem, self._name) from problem
            except pg_errors.LockNotAvailable as problem:
                if time.monotonic() > deadline + self._idle_seconds:
                    raise translate_errors(problem, self._name) from problem
                self._terminate_stalled()
            except _DUPLICATE as problem:
                # Another transaction inserted the row after this one had looked for it; the next
                # attempt finds it.
                if attempts >= _DUPLICATE_RETRIES:
                    raise translate_errors(problem, self._name) from problem
            except _ConnectionLost as problem:
                if time.monotonic() > deadline:
                    raise translate_errors(problem.cause, self._name) from problem.cause
            except FOREIGN as problem:
                raise translate_errors(problem, self._name) from problem
            attempts += 1
            time.sleep(JITTER.uniform(0, min(0.001 * 2**attempts, 0.1)))

    def _commit_state(self) -> tuple[Any, ...]:
        return self.read(lambda tx: tx.one("commit_state")) or ("",)

    def _is_one_commit(self, before: tuple[Any, ...], after: tuple[Any, ...]) -> bool:
        """Compare two snapshots, `xmin:xmax:running`: one id was used, and nothing runs."""
        (_, first, was_running), (_, last, is_running) = before[0].split(":"), after[0].split(":")
        return not was_running and not is_running and int(last) == int(first) + 1

    def notify(self, channel: str) -> None:
        """Notify this process at once, and the others soon, in a transaction of its own."""
        self._notifier.notify(channel)
        if not self._closed and os.getpid() == self._pid:
            self._sender.put(channel)

    def wait(self, channel: str, since: int, seconds: float) -> None:
        self._check_usable()
        self._listener.start()
        self._notifier.wait(channel, since, seconds)

    def has_space(self, size: int) -> bool:
        """Look whether the server can write a temporary file of that size, of 64 MB at most.

        It tells nobody how full its disk is. An answer counts for some seconds, so that nobody
        makes the server busy by asking.
        """
        size = min(size, _MAX_SPACE_BYTES)
        checked_at, checked_size, is_enough = self._space
        is_known = size <= checked_size if is_enough else size >= checked_size
        if is_known and time.monotonic() - checked_at < _SPACE_SECONDS:
            return is_enough
        try:
            with self._running_call():
                self._read(partial(_write_temporary_file, size))
        except StoreFull:
            is_enough = False
        else:
            is_enough = True
        self._space = time.monotonic(), size, is_enough
        return is_enough

    def check(self) -> list[str]:
        return self.read(lambda tx: inspection.find_violations(self._queries, tx.all))

    def backup(self, target: str, *, progress: Progress | None = None) -> None:
        raise IllegalMove(
            "A PostgreSQL store is backed up with the server's own tools.",
            hint="Run: pg_dump --format=custom --file=TARGET DATABASE.",
        )

    def vacuum(self) -> tuple[int, int]:
        try:
            with self._connect() as connection:
                before = _size(connection)
                connection.execute("vacuum (analyze)")
                return before, _size(connection)
        except psycopg.Error as problem:
            raise translate_errors(problem, self._name) from problem

    # -- transactions

    def _begin_call(self, call: object) -> None:
        """Note a call that runs, so that `close` waits for it.

        Note it first, then check whether the store is closed; `close` does the reverse. The caller
        removes the note in a `finally` that begins before this: after any call that Python makes
        there may be an interrupt.
        """
        self._running[call] = threading.get_ident()
        self._check_usable()

    @contextmanager
    def _running_call(self) -> Iterator[None]:
        """Note a call while it runs."""
        call = object()
        try:
            self._begin_call(call)
            yield
        finally:
            self._running.pop(call, None)

    def _read(self, read: Callable[[BatchConnection], T]) -> T:
        deadline = time.monotonic() + self._busy_seconds
        while True:
            try:
                connection = self._connections.take()
                try:
                    return read(connection)
                except BaseException as problem:
                    self._leave_usable(connection, problem)
                    raise
                finally:
                    self._connections.put_back(connection)
            except _ConnectionLost as problem:
                # After a restart of the server every connection in the pool is broken.
                if time.monotonic() > deadline:
                    raise translate_errors(problem.cause, self._name) from problem.cause
            except FOREIGN as problem:
                raise translate_errors(problem, self._name) from problem

    def _leave_usable(self, connection: BatchConnection, problem: BaseException) -> None:
        """Leave a connection usable after a failed read; raise `_ConnectionLost` if it was lost."""
        if isinstance(problem, psycopg.Error) and _is_lost(connection, problem):
            connection.close()
            raise _ConnectionLost(problem) from problem
        self._rollback(connection)

    def _write_once(self, work: Callable[[Transaction], T], locks: Locks, *, is_in_lane: bool) -> T:
        tx = None
        with self._connections.borrowed() as connection:
            batch = connection.batch
            try:
                tx = self._begin(batch, locks, is_in_lane=is_in_lane)
                result = work(tx)
                # Receive the id before the commit is sent; usually it has come by now, together
                # with the result of a query.
                if tx.id is None:
                    tx.receive()
                batch.put(COMMIT)
                batch.run()
            except psycopg.Error as problem:
                if not _is_lost(connection, problem):
                    self._rollback(connection)
                    raise  # the server refused, and nothing was stored
                connection.close()
                if tx is None or tx.id is None or not self._was_committed(tx.id, problem):
                    raise _ConnectionLost(problem) from problem
            except BaseException:
                self._rollback(connection)
                raise
            return result

    def _own_lane_statement(self, steps: Sequence[Step], lanes: Sequence[str]) -> Statement | None:
        """Return the only statement, with its values, if it takes the lock of its lane itself."""
        if len(steps) > 1 or len(lanes) > 1:
            return None
        ((name, params),) = steps
        query = self._queries[name]
        if _LANE not in query.names:
            return None
        params = {**params, **self._lane_params, _LANE: lock_id(lanes[0])}
        return Statement(query, [params[parameter] for parameter in query.names])

    def _run_together(self, group: Sequence[Statement]) -> None:
        """Run statements in one transaction, and set what came of each.

        If one fails, nothing is stored: none has rows, and the general path follows for all.
        """
        try:
            connection = self._connections.take()
            try:
                self._exchange_group(connection, group)
            finally:
                self._connections.put_back(connection)
        except PoolTimeout as problem:
            for statement in group:
                statement.error = translate_errors(problem, self._name)

    def _exchange_group(self, connection: BatchConnection, group: Sequence[Statement]) -> None:
        batch = connection.batch
        if len(group) > 1 and not batch.has_pipeline:
            # Each would be a transaction of its own.
            for statement in group:
                self._exchange_group(connection, [statement])
            return
        sent = []
        try:
            for statement in group:
                try:
                    batch.put(statement.query, statement.values)
                    sent.append(statement)
                except FOREIGN:
                    continue  # the general path tells what is wrong with the value
                except Exception as problem:  # noqa: BLE001 — raised again in its caller
                    statement.error = problem
            if not sent:
                return
            results = batch.run()
            for statement, result in zip(sent, results, strict=True):
                statement.rows = batch.rows(result)
        except FOREIGN as problem:
            if isinstance(problem, psycopg.Error) and _is_lost(connection, problem):
                connection.close()
                self._set_lost(sent)
                return
            log.debug("%d statements refused, the general path follows: %s", len(sent), problem)
            self._rollback(connection)
        except BaseException:
            connection.close()
            self._set_lost(sent)
            raise

    def _set_lost(self, statements: Sequence[Statement]) -> None:
        """Say of statements that nobody knows whether they were stored."""
        for statement in statements:
            statement.rows = None
            statement.error = StatementLost(self._unknown_outcome())

    def _attempt(
        self, connection: BatchConnection, steps: Sequence[Step], lanes: Sequence[str]
    ) -> list[list[Row]] | None:
        batch = connection.batch
        # Without a pipeline each statement would be a transaction, and the locks would not last.
        if not batch.has_pipeline:
            return None
        try:
            self._put_steps(batch, steps, sorted({*map(lock_id, lanes)}))
            results = batch.run()
        except FOREIGN as problem:
            if isinstance(problem, psycopg.Error) and _is_lost(connection, problem):
                connection.close()
                raise StatementLost(self._unknown_outcome()) from problem
            log.debug("%s was refused, the general path follows: %s", steps[-1][0], problem)
            self._rollback(connection)
            return None
        except BaseException:
            connection.close()
            raise
        if len(steps) > 1:
            results.pop()  # of the commit
        return [batch.rows(result) for result in results[-len(steps) :]]

    def _put_steps(self, batch: Batch, steps: Sequence[Step], numbers: Sequence[int]) -> None:
        """Put statements into a batch, after the locks of their lanes."""
        if len(steps) > 1:
            batch.put(_BEGIN_LANE)
        batch.put(_locking_query(self._attempt_limits, (False,) * len(numbers)), numbers)
        for name, params in steps:
            query = self._queries[name]
            batch.put(query, [params[parameter] for parameter in query.names])
        if len(steps) > 1:
            batch.put(COMMIT)

    def _begin(self, batch: Batch, locks: Locks, *, is_in_lane: bool) -> PostgresTransaction:
        """Begin a transaction."""
        batch.put(_BEGIN_LANE if is_in_lane else _BEGIN_SERIALIZABLE)
        numbers = sorted(locks)
        # The limits come first: they hold for the wait for the locks.
        columns = f"pg_current_xact_id()::text, {self._limits}"
        batch.put(_locking_query(columns, tuple(locks[number] for number in numbers)), numbers)
        queries = self._queries_in_lane if is_in_lane else self._queries
        return PostgresTransaction(batch, queries, locks, id_at=1)

    def _terminate_stalled(self) -> None:
        """Terminate our transactions whose process has sent nothing for the time of a lease.

        The server does so itself between two statements. In the middle of a message it waits for
        the rest for ever, and so would every transaction that wants the same lane.
        """
        try:
            with self._connect() as connection:
                connection.execute(_TERMINATE_STALLED, (self._idle_seconds,))
        except psycopg.Error as problem:
            error = translate_errors(problem, self._name)
            log.warning("could not terminate stalled backends: %s", error)

    def _read_once(self, work: Callable[[Transaction], T], connection: BatchConnection) -> T:
        batch = connection.batch
        try:
            return self._read_in(ShortRead(batch, self._queries), work, batch)
        except ReadGoesOn:
            batch.clear()
            return self._read_in(PostgresTransaction(batch, self._queries), work, batch)

    def _read_in(
        self, tx: PostgresTransaction, work: Callable[[Transaction], T], batch: Batch
    ) -> T:
        batch.put(_BEGIN_READ)
        result = work(tx)
        tx.end()
        return result

    def _query_once(self, statement: str, params: Params, connection: BatchConnection) -> list[Row]:
        batch, query = connection.batch, self._queries[statement]
        batch.put(query, [params[name] for name in query.names])
        return batch.rows(batch.run()[-1])

    def _was_committed(self, transaction_id: str, problem: psycopg.Error) -> bool:
        """Return whether a transaction was committed whose commit got no answer.

        Raise StoreUnavailable with `outcome="unknown"` if the database does not tell in time.
        """
        deadline = time.monotonic() + self._busy_seconds
        while True:
            try:
                with self._connect() as connection:
                    row = connection.execute(
                        "select pg_xact_status(%s::xid8)", (transaction_id,)
                    ).fetchone()
                status = row[0] if row else None
                if status in ("committed", "aborted"):
                    return bool(status == "committed")
            except psycopg.OperationalError:
                self._terminate_stalled()
            if time.monotonic() > deadline:
                raise self._unknown_outcome() from problem
            time.sleep(0.05)

    def _unknown_outcome(self) -> StoreUnavailable:
        return StoreUnavailable(
            f"The connection to {self._name} broke during a commit; it is unknown whether"
            " the data was stored.",
            hint="When the database is back, check before you repeat the call.",
            outcome="unknown",
        )

    def _connect(self) -> BatchConnection:
        return BatchConnection.connect(self._dsn, **self._connect_options())

    def _connect_options(self) -> dict[str, Any]:
        """Return the arguments for a connection.

        No startup options: poolers between this process and the server refuse them.
        """
        timeout = max(2, round(self._busy_seconds))
        return {
            "autocommit": True,
            "context": _TYPES,
            "row_factory": tuple_row,
            "application_name": _APPLICATION_NAME,
            "connect_timeout": timeout,
            # Without these, a lost network connection would be noticed only after hours.
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": timeout * 1000,
        }

    def _rollback(self, connection: BatchConnection) -> None:
        batch = connection.batch
        batch.clear()
        if not connection.closed and connection.info.transaction_status != 0:
            try:
                batch.put(_ROLLBACK)
                batch.run()
            except psycopg.OperationalError:
                connection.close()


class _ConnectionLost(Exception):
    """The connection broke before anything was stored: the work may run again."""

    def __init__(self, cause: psycopg.Error) -> None:
        super().__init__(str(cause))
        self.cause = cause


def _is_lost(connection: BatchConnection, problem: psycopg.Error) -> bool:
    """Return whether a connection is unusable, even if psycopg does not know it yet.

    A server that shuts down sends an error first. In a pipeline that error comes among the results,
    and the only exception left is that the pipeline cannot be ended.
    """
    if connection.closed or problem.diag.severity_nonlocalized in ("FATAL", "PANIC"):
        return True
    return isinstance(problem, psycopg.OperationalError) and problem.sqlstate is None


def _limits(safe: bool, idle_seconds: float) -> list[str]:
    """Return the columns of a query that set the time limits and the durability of a write.

    A process that is stopped or cut off in the middle of a write must not keep its locks for longer
    than a lease: the server then ends the transaction. A write that waits for a lock for a quarter
    of that time looks for stalled transactions. No statement is compiled: that took a third of a
    second each time where the server expects a claim, which reads a few rows, to read many.
    """
    idle = max(1, round(idle_seconds * 1000))
    limits = {
        "idle_in_transaction_session_timeout": idle,
        "lock_timeout": _lock_timeout(idle_seconds),
        "jit": "off",
    }
    settings = [f"set_config('{name}', '{value}', true)" for name, value in limits.items()]
    if not safe:
        settings.append("set_config('synchronous_commit', 'off', true)")
    return settings


def _lock_timeout(idle_seconds: float) -> str:
    """Return the milliseconds for which a write waits for a lock."""
    return f"{max(1, round(idle_seconds * 250))}"


@cache
def _queries_in_lane() -> dict[str, Query]:
    """Return the statements as work in a session's lane runs them; all handles share them."""
    return {
        name: query._replace(text=query.text.replace(_ROW_LOCK, b"for update of sessions"))
        for name, query in statements.load_numbered(migrate.DIALECT).items()
    }


@lru_cache(maxsize=256)
def _locking_query(columns: str, shared: tuple[bool, ...]) -> Query:
    """Return a query of some columns that takes locks after them, in the order of its values."""
    calls = [
        f"pg_advisory_xact_lock{'_shared' if is_shared else ''}(${number})"
        for number, is_shared in enumerate(shared, 1)
    ]
    return Query(f"select {', '.join([columns, *calls])}".encode())


def public_name(dsn: str) -> str:
    """Return the address of the database without its password; raise ConfigError if invalid."""
    try:
        parts = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError as problem:
        raise ConfigError(
            f"Invalid address of the store: {_without_quotes(problem)}.",
            hint="Give it as postgresql://USER@HOST/DATABASE; the password may be in PGPASSWORD.",
            field="where",
        ) from problem
    host = parts.get("host") or "the local socket"
    port = f":{parts['port']}" if parts.get("port") else ""
    return f"postgresql://{host}{port}/{parts.get('dbname') or ''}"


def _without_quotes(problem: psycopg.Error) -> str:
    """Return the error text without the parts of the address it quotes: one may be a password."""
    return re.sub(r'"[^"]*"', "…", " ".join(str(problem).split()))


def _write_temporary_file(size: int, connection: BatchConnection) -> None:
    """Let the server write a temporary file; it is on the disk of the database by default."""
    with connection.transaction():
        connection.execute("set local work_mem = '64kB'")
        connection.execute(_SORT_IN_FILE, (size // _SORTED_BYTES,))


def _size(connection: BatchConnection) -> int:
    row = connection.execute("select pg_database_size(current_database())").fetchone()
    return int(row[0]) if row else 0
