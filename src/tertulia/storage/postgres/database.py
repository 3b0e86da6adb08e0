"""PostgreSQL: many processes on many machines on one set of conversations.

What a transaction does without asking for an answer is sent together with its next question or with
its commit (a pipeline), for the way to the server is what costs most.

Work of one conversation waits for other work of it, by a lock on its name: its statements then see
what was committed last. All other writes run serializable: the database notices when two of them
could not have run one after the other, and one is run again. (With everything serializable, four
nodes did less than one: pages that neighbours share make conflicts of work that has nothing in
common.) A commit whose connection breaks is not guessed about: the number of
the transaction was noted when it began, and the database is asked what became of it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import psycopg
from psycopg import errors as pg_errors
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import tuple_row
from psycopg_pool import ConnectionPool, PoolTimeout

from tertulia.core.text.search_terms import Phrase
from tertulia.errors import ConfigError, IllegalMove, StoreError, StoreUnavailable
from tertulia.storage import statements
from tertulia.storage.base import Params, Progress, Row, Transaction
from tertulia.storage.notify import notifier_of
from tertulia.storage.postgres import migrate
from tertulia.storage.postgres.errors import (
    FOREIGN,
    translate_errors,
)
from tertulia.storage.postgres.notify import (
    CHANNEL,
    Listener,
)
from tertulia.storage.postgres.search import (
    entry,
    question,
)
from tertulia.storage.sqlite import inspect

T = TypeVar("T")
log = logging.getLogger("tertulia.storage")
Connection = psycopg.Connection[Row]

_BEGIN_READ = "begin isolation level repeatable read, read only"
_AGAIN = (pg_errors.SerializationFailure, pg_errors.DeadlockDetected)
_TAKEN = (pg_errors.UniqueViolation, pg_errors.ExclusionViolation)
_TAKEN_TRIES = 5
_ASK_SECONDS = 2.0
_NO_PARAMS: Params = {}
_PROGRAM = "tertulia"
_END_SILENT = f"""select pg_terminate_backend(pid) from pg_stat_activity
    where datname = current_database() and usename = current_user
        and application_name = '{_PROGRAM}' and xact_start is not null
        and state = 'active' and wait_event = 'ClientRead'
        and state_change < now() - make_interval(secs => %s)"""
# Stands in statements that read a session: who works in its lane has the row from then on, so that
# work outside of the lane (a reset, say) waits for it, or it for that.
_HOLD = "/* hold */"


class PostgresTransaction:
    """Statements by name on one connection."""

    __slots__ = ("_connection", "_sql")

    def __init__(self, connection: Connection, sql: dict[str, str]) -> None:
        self._connection = connection
        self._sql = sql

    def run(self, statement: str, params: Params = _NO_PARAMS) -> None:
        self._execute(statement, params)

    def changed(self, statement: str, params: Params = _NO_PARAMS) -> int:
        with _pipeline(self._connection):  # at its end, everything in it is waited for
            cursor = self._execute(statement, params)
        return cursor.rowcount

    def one(self, statement: str, params: Params = _NO_PARAMS) -> Row | None:
        return self._execute(statement, params).fetchone()

    def all(self, statement: str, params: Params = _NO_PARAMS) -> list[Row]:
        return self._execute(statement, params).fetchall()

    def many(self, statement: str, rows: Iterable[Params | Row]) -> None:
        self._connection.cursor().executemany(self._sql[statement], list(rows))

    def hold(self, name: str, *, shared: bool = False) -> None:
        how = "_shared" if shared else ""
        self._connection.execute(f"select pg_advisory_xact_lock{how}(%s)", (_number_of(name),))

    def search_entry(self, text: str) -> Any:
        return entry(text)

    def search_question(self, phrases: list[Phrase]) -> str:
        return question(phrases)

    def _execute(self, statement: str, params: Params) -> psycopg.Cursor[Row]:
        return self._connection.execute(self._sql[statement], params)


class PostgresDatabase:
    """A store in a PostgreSQL database."""

    one_writer = False

    def __init__(
        self,
        dsn: str,
        *,
        safe: bool = True,
        busy_seconds: float = 30.0,
        idle_seconds: float = 60.0,
    ) -> None:
        self._name = public_name(dsn)
        self._sql = statements.with_percents(statements.load(migrate.DIALECT))
        self._sql_in_lane = {
            name: sql.replace(_HOLD, "for update of sessions") for name, sql in self._sql.items()
        }
        self._pid = os.getpid()
        self._closed = False
        self._under_way = 0
        self._idle = threading.Condition()
        self._busy_seconds = busy_seconds
        self._dsn = dsn
        self._idle_seconds = idle_seconds
        self._limits = _limits(safe, idle_seconds)
        self._notifier = notifier_of(self.identity)
        self._listener = Listener(dsn, self._notifier)
        try:
            with self._connect() as connection:
                migrate.bring_up_to_date(connection, self._name)
        except psycopg.Error as problem:
            raise translate_errors(problem, self._name) from problem
        self._pool: ConnectionPool[Connection] = ConnectionPool(
            dsn,
            min_size=1,
            max_size=16,
            # It doubles its pauses while a server is away, and would sleep long after it is back.
            reconnect_timeout=_ASK_SECONDS / 2,
            kwargs=self._kwargs(),
            open=True,
        )

    # -- promises

    def write(self, work: Callable[[Transaction], T], *, lane: str | None = None) -> T:
        with self._inside():
            return self._write(work, lane)

    def in_one_commit(self, calls: Callable[[], None]) -> None:
        """Each call is a transaction: one for all would keep every lane of theirs to its end."""
        calls()

    def exclusive(self, work: Callable[[Transaction], T]) -> T:
        """Each statement sees what was committed before the lock: hence no snapshot."""
        deadline = time.monotonic() + self._busy_seconds
        with self._inside():
            while True:
                try:
                    with self._connect() as connection, connection.transaction():
                        tx = PostgresTransaction(connection, self._sql)
                        tx.run("lock_out")
                        tx.run("lock_out_rest")
                        return work(tx)
                except _AGAIN as problem:
                    # Somebody had one of the tables and wanted another: who waited has gone on.
                    if time.monotonic() > deadline:
                        raise translate_errors(problem, self._name) from problem
                except FOREIGN as problem:
                    raise translate_errors(problem, self._name) from problem

    def read(self, work: Callable[[Transaction], T]) -> T:
        with self._inside():
            return self._read(work)

    def close(self) -> None:
        with self._idle:
            if self._closed:
                return
            self._closed = True
            self._idle.wait_for(lambda: self._under_way == 0)
        if os.getpid() == self._pid:
            self._listener.stop()
            self._pool.close()

    def _write(self, work: Callable[[Transaction], T], lane: str | None) -> T:
        deadline = time.monotonic() + self._busy_seconds
        tries = 0
        while True:
            try:
                return self._write_once(work, lane)
            except _AGAIN as problem:
                if time.monotonic() > deadline:
                    raise translate_errors(problem, self._name) from problem
            except pg_errors.LockNotAvailable as problem:
                if time.monotonic() > deadline + self._idle_seconds:
                    raise translate_errors(problem, self._name) from problem
                self._end_silent()
            except _TAKEN as problem:
                # Whoever looked before it wrote was overtaken, and sees it the next time.
                if tries >= _TAKEN_TRIES:
                    raise translate_errors(problem, self._name) from problem
            except _Lost as problem:
                if time.monotonic() > deadline:
                    raise translate_errors(problem.cause, self._name) from problem.cause
            except FOREIGN as problem:
                raise translate_errors(problem, self._name) from problem
            tries += 1
            time.sleep(random.uniform(0, min(0.001 * 2**tries, 0.1)))  # noqa: S311 — a pause

    def notify(self, channel: str) -> None:
        """After the commit, on its own: within, all committers would wait for one lock."""
        self._notifier.notify(channel)
        try:
            with self._inside(), self._borrowed() as connection:
                connection.execute("select pg_notify(%s, %s)", (CHANNEL, channel))
        except (*FOREIGN, StoreError) as problem:
            log.debug("a bell was not rung: %s", problem)  # who waits looks all the same

    def notifications(self, channel: str) -> int:
        return self._notifier.notifications(channel)

    def wait(self, channel: str, since: int, seconds: float) -> None:
        self._check_usable()
        self._listener.start()
        self._notifier.wait(channel, since, seconds)

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def name(self) -> str:
        return self._name

    @property
    def identity(self) -> str:
        return self._dsn

    def check(self) -> list[str]:
        return self.read(lambda tx: inspect.faults(self._sql, tx.all))

    def backup(self, target: str, *, progress: Progress | None = None) -> None:
        raise IllegalMove(
            "A PostgreSQL store is backed up by the server's own tools.",
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

    # -- within

    @contextmanager
    def _inside(self) -> Iterator[None]:
        """Counted, so that closing can wait for it."""
        self._check_usable()
        with self._idle:
            self._check_usable()
            self._under_way += 1
        try:
            yield
        finally:
            with self._idle:
                self._under_way -= 1
                self._idle.notify_all()

    def _read(self, work: Callable[[Transaction], T]) -> T:
        deadline = time.monotonic() + self._busy_seconds
        while True:
            try:
                with self._borrowed() as connection:
                    return self._read_once(connection, work)
            except _Lost as problem:
                # A server that was restarted leaves a pool of connections that all are broken.
                if time.monotonic() > deadline:
                    raise translate_errors(problem.cause, self._name) from problem.cause
            except FOREIGN as problem:
                raise translate_errors(problem, self._name) from problem

    def _write_once(self, work: Callable[[Transaction], T], lane: str | None) -> T:
        number = None
        with self._borrowed() as connection:
            try:
                with _pipeline(connection):
                    tx, begun = self._begun(connection, lane)
                    result = work(tx)
                    # Known before the commit is sent; by now it mostly has come with an answer.
                    (number,) = begun.fetchone() or (None,)
                    connection.execute("commit")
            except psycopg.Error as problem:
                if not _is_lost(connection, problem):
                    self._rollback(connection)
                    raise  # the server has said no, and nothing was stored
                connection.close()
                if number is None or not self._became(number, problem):
                    raise _Lost(problem) from problem
            except BaseException:
                self._rollback(connection)
                raise
            return result

    def _begun(
        self, connection: Connection, lane: str | None
    ) -> tuple[PostgresTransaction, psycopg.Cursor[Row]]:
        """A transaction, and where its number will stand."""
        how = "serializable" if lane is None else "read committed"
        connection.execute(f"begin isolation level {how}")
        connection.execute(self._limits)
        tx = PostgresTransaction(connection, self._sql if lane is None else self._sql_in_lane)
        if lane is not None:
            tx.hold(lane)
        return tx, connection.execute("select pg_current_xact_id()::text")

    def _end_silent(self) -> None:
        """End transactions of ours whose process has said nothing for the time of a lease.

        The server does so itself between two questions. In the middle of what a process sends, it
        waits for the rest for ever, and so would everybody who wants the same lane.
        """
        try:
            with self._connect() as connection:
                connection.execute(_END_SILENT, (self._idle_seconds,))
        except psycopg.Error as problem:
            log.warning("nobody could be asked to leave: %s", translate_errors(problem, self._name))

    def _read_once(self, connection: Connection, work: Callable[[Transaction], T]) -> T:
        try:
            with _pipeline(connection):
                connection.execute(_BEGIN_READ)
                found = work(PostgresTransaction(connection, self._sql))
                connection.execute("commit")
        except BaseException as problem:
            if isinstance(problem, psycopg.Error) and _is_lost(connection, problem):
                connection.close()
                raise _Lost(problem) from problem
            self._rollback(connection)
            raise
        return found

    def _became(self, number: str | None, problem: psycopg.Error) -> bool:
        """Whether a transaction whose commit was not answered was committed all the same."""
        deadline = time.monotonic() + self._busy_seconds
        while True:
            try:
                with self._connect() as connection:
                    row = connection.execute(
                        "select pg_xact_status(%s::xid8)", (number,)
                    ).fetchone()
                status = row[0] if row else None
                if status in ("committed", "aborted"):
                    return bool(status == "committed")
            except psycopg.OperationalError:
                self._end_silent()
            if time.monotonic() > deadline:
                raise StoreUnavailable(
                    f"The connection to {self._name} broke during a commit, and it cannot be told"
                    " whether it was stored.",
                    hint="When the database is back, look before you repeat the call.",
                    outcome="unknown",
                ) from problem
            time.sleep(0.05)

    @contextmanager
    def _borrowed(self) -> Iterator[Connection]:
        connection = self._lent()
        try:
            yield connection
        finally:
            self._pool.putconn(connection)

    def _lent(self) -> Connection:
        """A connection of the pool, asked for again and again: each time, it tries to make one."""
        deadline = time.monotonic() + self._busy_seconds
        while True:
            left = max(deadline - time.monotonic(), 0.01)
            try:
                return self._pool.getconn(min(left, _ASK_SECONDS))
            except PoolTimeout:
                if left <= _ASK_SECONDS:
                    waited = f"after {self._busy_seconds:g} seconds no connection was free"
                    raise PoolTimeout(waited) from None

    def _connect(self) -> Connection:
        return psycopg.connect(self._dsn, **self._kwargs())

    def _kwargs(self) -> dict[str, Any]:
        """How to connect. No startup options: poolers between here and the server refuse them."""
        wait = max(2, round(self._busy_seconds))
        return {
            "autocommit": True,
            "row_factory": tuple_row,
            "application_name": _PROGRAM,
            "connect_timeout": wait,
            # A server that is cut off is noticed, instead of waited for by the hour.
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": wait * 1000,
        }

    def _rollback(self, connection: Connection) -> None:
        if not connection.closed and connection.info.transaction_status != 0:
            try:
                # Its own word for it also forgets which statements were prepared: where one has
                # failed, the preparing of those behind it was skipped.
                connection.rollback()
            except psycopg.OperationalError:
                connection.close()

    def _check_usable(self) -> None:
        if self._closed:
            raise StoreError("The store is closed.", hint="Open it again with tertulia.open(…).")
        if os.getpid() != self._pid:
            raise StoreError(
                "This store was opened before the process forked.",
                hint="Open it again in the new process.",
            )


class _Lost(Exception):
    """The connection broke before anything was stored: the work may run again."""

    def __init__(self, cause: psycopg.Error) -> None:
        super().__init__(str(cause))
        self.cause = cause


def _is_lost(connection: Connection, problem: psycopg.Error) -> bool:
    """Whether a connection is of no use any more, which it may not know yet itself.

    A server that goes away says so first. In a pipeline, that is heard among the answers, and then
    all that is left to say is that it cannot be ended.
    """
    if connection.closed or problem.diag.severity_nonlocalized in ("FATAL", "PANIC"):
        return True
    return isinstance(problem, psycopg.OperationalError) and problem.sqlstate is None


def _pipeline(connection: Connection) -> AbstractContextManager[object]:
    """Nothing is waited for before it is asked for; a libpq before 14 waits each time."""
    return connection.pipeline() if psycopg.capabilities.has_pipeline() else nullcontext()


def _limits(safe: bool, idle_seconds: float) -> str:
    """How long a write may keep others waiting, and wait itself before it looks why.

    A process that is stopped or cut off in the middle of one must not keep its locks for longer
    than a lease: then the server ends it.
    """
    idle = max(1, round(idle_seconds * 1000))
    limits = {"idle_in_transaction_session_timeout": idle, "lock_timeout": max(1, idle // 4)}
    found = [f"set_config('{name}', '{value}', true)" for name, value in limits.items()]
    if not safe:
        found.append("set_config('synchronous_commit', 'off', true)")
    return f"select {', '.join(found)}"


def _number_of(name: str) -> int:
    """A name as the server's locks have it. Two that share a number wait for each other in vain,
    and do no harm."""
    found = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(found, "big", signed=True)


def public_name(dsn: str) -> str:
    """Where the database is, without its password."""
    try:
        known = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError as problem:
        raise ConfigError(
            f"The address of the store cannot be read: {_without_quotes(problem)}.",
            hint="Give it as postgresql://USER@HOST/DATABASE; the password may be in PGPASSWORD.",
            field="where",
        ) from problem
    host = known.get("host") or "the local socket"
    return f"postgresql://{host}/{known.get('dbname') or ''}"


def _without_quotes(problem: psycopg.Error) -> str:
    """What is wrong with an address; the parts it quotes may be a password."""
    return re.sub(r'"[^"]*"', "…", " ".join(str(problem).split()))


def _size(connection: Connection) -> int:
    row = connection.execute("select pg_database_size(current_database())").fetchone()
    return int(row[0]) if row else 0
