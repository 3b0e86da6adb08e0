"""A real PostgreSQL server for tests, started and stopped by the test session.

`TEST_PG_DSN` names a server to use instead. Otherwise the newest version installed on this machine
is started on a socket of its own, with its data in memory and without fsync: tests of durability
kill processes, not machines.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psycopg

MISSING = (
    "PostgreSQL is needed for these tests and was not found. Install it"
    " (on Debian and Ubuntu: apt-get install postgresql), or set TEST_PG_DSN."
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

    def database(self, template: str | None = None) -> str:
        """Create a database, empty or a copy of `template`; return its address."""
        self._databases += 1
        name = f"t{os.getpid()}_{self._databases}"
        template_clause = f" template {template} strategy file_copy" if template else ""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(f"create database {name}{template_clause}")
        return self.address(name)

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
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(f"drop database if exists {name} with (force)")


def name_in(address: str) -> str:
    """Return the name of the database in an address."""
    return str(psycopg.conninfo.conninfo_to_dict(address)["dbname"])


@contextmanager
def server() -> Iterator[Server]:
    """Yield a running server: that of TEST_PG_DSN, or one started for the block."""
    dsn = os.environ.get("TEST_PG_DSN")
    if dsn:
        yield Server(dsn)
        return
    with own_server() as running:
        yield running


@contextmanager
def own_server(hba: str | None = None, *, is_durable: bool = False) -> Iterator[Server]:
    """Yield a server that a test may stop, start and configure.

    A durable server has its data on a disk and waits for it, as in production.
    """
    binaries = programs()
    if binaries is None:
        raise RuntimeError(MISSING)
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir=None if is_durable else _memory_folder()))
    user = _unprivileged_user()
    process: subprocess.Popen[bytes] | None = None

    def start() -> None:
        nonlocal process
        process = _start(binaries, folder, user, _DURABLE if is_durable else _QUICK)

    def stop(stop_signal: signal.Signals = signal.SIGINT) -> None:
        nonlocal process
        if process is not None:
            process.send_signal(stop_signal)
            process.wait(60)
            process = None

    try:
        if user is not None:
            os.chown(folder, user.pw_uid, user.pw_gid)
        _run([binaries / "initdb", "-D", folder / "data", "-A", "trust", "-U", "postgres",
              "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"], user)  # fmt: skip
        if hba is not None:
            (folder / "data" / "pg_hba.conf").write_text(hba)
        start()
        try:
            yield Server(f"host={folder} user=postgres dbname=postgres", start, stop)
        finally:
            stop(signal.SIGQUIT)  # at once: its data is not needed any more
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# Deadlocks that tests provoke are found at once, not after a second.
_QUICK = {
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
            _command_as(user, [programs / "postgres", "-D", folder / "data", *arguments]),
            stdout=subprocess.DEVNULL,
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
# thread would be held for ever. It drops root, and ends the server with the thread that started it.
_EXEC_AS_USER = """
import ctypes, os, sys
uid, gid = map(int, sys.argv[1:3])
prctl = ctypes.CDLL(None).prctl
if uid:
    os.setgid(gid)
    os.setuid(uid)
prctl(1, 2)  # PR_SET_PDEATHSIG, SIGINT
os.execv(sys.argv[3], sys.argv[3:])
"""


def _command_as(user: pwd.struct_passwd | None, command: list[object]) -> list[str]:
    uid, gid = (user.pw_uid, user.pw_gid) if user is not None else (0, 0)
    return [sys.executable, "-c", _EXEC_AS_USER, str(uid), str(gid), *map(str, command)]


def _run(command: list[object], user: pwd.struct_passwd | None) -> None:
    result = subprocess.run(_command_as(user, command), capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(result.stderr)


def programs() -> Path | None:
    """Return the folder with the programs of the newest server on this machine, or None."""
    servers = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda p: float(p.parts[-3])
    )
    if servers:
        return servers[-1].parent
    on_path = shutil.which("postgres")
    return Path(on_path).resolve().parent if on_path else None


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
