"""Opening a SQLite file as a store: create it privately, refuse other programs' files, set WAL."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from array import array
from collections.abc import Callable

import apsw

from tertulia.core.backoff import JITTER
from tertulia.errors import NotAStore, StoreUnavailable
from tertulia.storage import migration
from tertulia.storage.sqlite import migrate

_CACHE_KILOBYTES = 16_000
_LONGEST_PAUSE = 0.025  # seconds between two attempts on a file that other processes use
_HEADER_BYTES = 100  # every SQLite file begins with a header of this size
_PAGE_BYTES = 4096  # SQLite writes whole pages of this size
_WAL_BYTES = 32 * 2**20  # twice what is written between two checkpoints
_CREATION_LOCK = threading.Lock()


def open_writer(path: str, *, is_safe: bool, busy_seconds: float) -> apsw.Connection:
    """Return a connection that may write, to a file that is a store of the current schema.

    Create the file if it does not exist. Raise NotAStore or SchemaMismatch, and change nothing, if
    the file belongs to another program or to a newer version of this one.
    """
    _refuse_foreign_file(path, busy_seconds)
    _create_private_file(path)
    connection = connect(path, is_safe=is_safe, busy_seconds=busy_seconds)
    # A busy gateway changes more pages between two commits than SQLite caches by default.
    connection.execute(f"pragma cache_size = -{_CACHE_KILOBYTES}")
    try:
        _refuse_read_only(connection, path)
        _switch_to_wal(connection, path, busy_seconds)
        # Without a busy handler the migration returns to its own loop while another process holds
        # the lock, and there checks whether that process has already applied the migrations.
        connection.set_busy_handler(None)
        migrate.apply_migrations(connection, path, busy_handler(busy_seconds))
        connection.set_busy_handler(busy_handler(busy_seconds))
    except BaseException:
        connection.close()  # a caller that keeps the error must not keep the file open
        raise
    return connection


def connect(path: str, *, is_safe: bool, busy_seconds: float) -> apsw.Connection:
    """Return a new connection with the settings that every connection of a store has."""
    # apsw drops the statement that was not run for so many others; it allows no more.
    connection = apsw.Connection(path, statementcachesize=512)
    connection.set_busy_handler(busy_handler(busy_seconds))
    connection.execute(f"pragma synchronous = {'full' if is_safe else 'normal'}")
    connection.execute("pragma fullfsync = on")
    # A page that many turns change is then written back once for all of them.
    connection.execute("pragma wal_autocheckpoint = 4000")
    # A reader that stays open lets the -wal file grow. Once it has left, the file is cut to this
    # size when it begins anew; it would stay as large as it ever was.
    connection.execute(f"pragma journal_size_limit = {_WAL_BYTES}")
    # Query plans must not depend on bound values: otherwise SQLite plans a statement that uses a
    # partial index again on every run.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    connection.execute("pragma foreign_keys = off")
    connection.execute("pragma temp_store = memory")
    # Deleted content is overwritten, also in free pages that would be reused only when the file
    # grows again.
    connection.execute("pragma secure_delete = on")
    return connection


class OpenFile:
    """The file of an open store: where it is, whatever the working directory becomes.

    A program that replaces, moves or deletes it would otherwise take what is written from then on
    along, although the callers were told that it is stored.
    """

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        self._shown_path = path
        self._identity = _identity_of(self.path)

    def commit_check(self, writer: apsw.Connection) -> Callable[[], None]:
        """Return a function that does what `check` does, for use before each commit.

        SQLite tells in half the time whether its file is still there; but it does not know of a
        symbolic link, which may name another file by now.
        """
        has_moved = array("i", [0])
        address, _ = has_moved.buffer_info()
        is_link = os.path.realpath(self.path) != self.path
        if is_link or not writer.file_control("main", apsw.SQLITE_FCNTL_HAS_MOVED, address):
            return self.check

        def check() -> None:
            writer.file_control("main", apsw.SQLITE_FCNTL_HAS_MOVED, address)
            if has_moved[0]:
                self.check()

        return check

    def check(self) -> None:
        """Raise StoreUnavailable if another file is there now, or none."""
        if _identity_of(self.path) != self._identity:
            raise StoreUnavailable(
                "The file of the store was replaced, moved or deleted while it was open; this call"
                f" stored nothing ({self._shown_path}).",
                hint="Put the file back, or close the store and open it again.",
                where=self._shown_path,
            )


def _identity_of(path: str) -> tuple[int, int] | None:
    """Return what only this file has; None if there is none."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def busy_handler(
    seconds: float, waiting_since: Callable[[], float | None] = lambda: None
) -> Callable[[int], bool]:
    """Return a busy handler that waits up to `seconds` for other processes, in random pauses.

    SQLite's own pauses grow until a waiting process starves. These pauses grow too, but only a
    little: dozens of processes that retry all the time would leave no processor to the one they
    wait for.

    `waiting_since()` returns the time at which the caller began to wait if that was before the
    first attempt. A caller that stood in a queue behind one that waited in vain does not get the
    full time again.
    """
    started_at = 0.0

    def wait(attempts: int) -> bool:
        nonlocal started_at
        now = time.monotonic()
        if attempts == 0:
            started_at = waiting_since() or now
        waited = now - started_at
        if waited > seconds:
            return False
        longest = min(_LONGEST_PAUSE, 0.002 + waited / 20)
        time.sleep(JITTER.uniform(0.0002, longest))
        return True

    return wait


def _refuse_foreign_file(path: str, busy_seconds: float) -> None:
    """Check an existing file without changing it.

    Raise NotAStore if it is not a store, SchemaMismatch if a newer version of Tertulia wrote it.
    """
    if path == ":memory:":
        raise StoreUnavailable(
            "A store needs a file: ':memory:' would be a separate database for every thread.",
            hint="Use a file in a temporary folder.",
        )
    if os.path.isdir(path):
        raise NotAStore(f"{path} is a folder.", hint="Name a file in it, such as talk.db.")
    if not os.path.exists(path) or os.path.getsize(path) == 0:
        return
    if os.path.getsize(path) < _HEADER_BYTES:  # SQLite would accept a file of one byte as new
        raise NotAStore(
            f"{path} is not a database.", hint="Name another file; this one was not changed."
        )
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        connection.set_busy_handler(busy_handler(busy_seconds))
        if _is_interrupted_creation(connection, path):
            return
        # The schema must be read before the application id: a process that creates the store at
        # this moment commits both together.
        is_empty = not connection.execute("select 1 from sqlite_schema limit 1").fetchall()
        application_id = connection.pragma("application_id")
        if application_id != migrate.APPLICATION_ID and (application_id or not is_empty):
            raise NotAStore(
                f"{path} is a SQLite database of another program.",
                hint="Name another file; this one was not changed. To import its conversations, "
                "use: tertulia import.",
                where=path,
            )
        if not is_empty:
            applied = migrate.applied_migrations(connection)
            migration.refuse_newer(applied, migrate.DIALECT, path)
    finally:
        connection.close()


def _is_interrupted_creation(connection: apsw.Connection, path: str) -> bool:
    """Return whether a process was killed while it created the file; it must be created again.

    SQLite has to write before it can read a file that was left in the middle of a change. A store
    is in that state only while it is created, and is then one page long. Raise NotAStore for a
    longer file: another program left it.
    """
    try:
        connection.pragma("schema_version")
    except apsw.ReadOnlyError as problem:
        code: int = getattr(problem, "extendedresult", 0)  # apsw's type stubs lack it
        if code != apsw.SQLITE_READONLY_ROLLBACK:
            raise
        if os.path.getsize(path) > _PAGE_BYTES:
            raise NotAStore(
                f"{path} was left by another program in the middle of a change.",
                hint="Name another file; this one was not changed.",
                where=path,
            ) from problem
        return True
    return False


def _refuse_read_only(connection: apsw.Connection, path: str) -> None:
    """Raise StoreUnavailable if SQLite could open the file for reading only."""
    if connection.readonly("main"):
        raise StoreUnavailable(
            f"The store may only be read ({path}).",
            hint="Give this user the right to write to the file and to its folder.",
            where=path,
        )


def _create_private_file(path: str) -> None:
    """Create the file with mode 0600 if it does not exist; its -wal file inherits the mode.

    An existing file is not opened here: closing it would drop every lock that this process holds on
    it. For the same reason the lock keeps other threads from opening the file before it is closed.
    """
    with _CREATION_LOCK, contextlib.suppress(OSError):  # SQLite reports the error more precisely
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _switch_to_wal(connection: apsw.Connection, path: str, busy_seconds: float) -> None:
    """Switch the file to WAL mode; retry while another process does the same.

    The switch ignores the busy handler, hence the loop. Raise StoreUnavailable if the file system
    does not support shared memory.
    """
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
                f"{path} is on a file system where SQLite cannot share memory between programs.",
                hint="Keep the store on a local disk, not on a network file system.",
            )
        time.sleep(JITTER.uniform(0.001, 0.01))
