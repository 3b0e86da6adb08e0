"""A real PostgreSQL for tests: started by the test session, gone with it.

`TEST_PG_DSN` names a server to use instead. Otherwise the newest one installed on this machine is
started on a socket of its own, with its data in memory and without fsync: tests of durability kill
processes, not machines.
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
    """A server, and how its databases are named."""

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
        self._made = 0

    def database(self, template: str | None = None) -> str:
        """The address of a new, empty database."""
        self._made += 1
        name = f"t{os.getpid()}_{self._made}"
        copied = f" template {template} strategy file_copy" if template else ""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(f"create database {name}{copied}")
        return self.address(name)

    def address(self, name: str) -> str:
        known = psycopg.conninfo.conninfo_to_dict(self.dsn)
        host, user = known.get("host", ""), known.get("user", "")
        port = known.get("port", "5432")
        return f"postgresql://{user}@/{name}?host={host}&port={port}"

    def restart(self) -> None:
        """Stop it as an operator does, connections or not, and start it again."""
        self.stop()
        self.start()

    def stop(self) -> None:
        assert self._stop is not None, "a server that was given is not stopped"
        self._stop()

    def start(self) -> None:
        assert self._start is not None, "a server that was given is not started"
        self._start()

    @property
    def folder(self) -> Path:
        """Where it has its socket, and beside it its data."""
        return Path(str(psycopg.conninfo.conninfo_to_dict(self.dsn)["host"]))

    def drop(self, address: str) -> None:
        name = name_in(address)
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(f"drop database if exists {name} with (force)")


def name_in(address: str) -> str:
    """The database that an address names."""
    return str(psycopg.conninfo.conninfo_to_dict(address)["dbname"])


@contextmanager
def server() -> Iterator[Server]:
    """A running server: the one that was given, or one of its own."""
    given = os.environ.get("TEST_PG_DSN")
    if given:
        yield Server(given)
        return
    with own_server() as running:
        yield running


@contextmanager
def own_server(hba: str | None = None, *, is_durable: bool = False) -> Iterator[Server]:
    """A server that may be stopped, started, and configured as a test likes.

    One that is durable has its data on a disk and waits for it, as in real life.
    """
    found = programs()
    if found is None:
        raise RuntimeError(MISSING)
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir=None if is_durable else _memory()))
    user = _user()
    process: subprocess.Popen[bytes] | None = None

    def start() -> None:
        nonlocal process
        process = _start(found, folder, user, _DURABLE if is_durable else _QUICK)

    def stop(how: signal.Signals = signal.SIGINT) -> None:
        nonlocal process
        if process is not None:
            process.send_signal(how)
            process.wait(60)
            process = None

    try:
        if user is not None:
            os.chown(folder, user.pw_uid, user.pw_gid)
        _run([found / "initdb", "-D", folder / "data", "-A", "trust", "-U", "postgres",
              "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"], user)  # fmt: skip
        if hba is not None:
            (folder / "data" / "pg_hba.conf").write_text(hba)
        start()
        try:
            yield Server(f"host={folder} user=postgres dbname=postgres", start, stop)
        finally:
            stop(signal.SIGQUIT)  # at once: nobody needs what is in it
    finally:
        shutil.rmtree(folder, ignore_errors=True)


_QUICK = {"fsync": "off", "full_page_writes": "off", "shared_buffers": "64MB"}
_DURABLE = {"shared_buffers": "2GB", "max_wal_size": "8GB"}


def _start(
    programs: Path,
    folder: Path,
    user: pwd.struct_passwd | None,
    how: Mapping[str, str],
) -> subprocess.Popen[bytes]:
    options = {
        "listen_addresses": "",
        "unix_socket_directories": str(folder),
        "max_connections": "200",
        **how,
    }
    arguments = [f"-c{name}={value}" for name, value in options.items()]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            _as(user, [programs / "postgres", "-D", folder / "data", *arguments]),
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


# In a process of its own, not between fork and exec, where a lock that another thread held would be
# held for ever: not root, and gone with the thread that started it.
_BECOME = """
import ctypes, os, sys
uid, gid = map(int, sys.argv[1:3])
prctl = ctypes.CDLL(None).prctl
if uid:
    os.setgid(gid)
    os.setuid(uid)
prctl(1, 2)  # PR_SET_PDEATHSIG, SIGINT
os.execv(sys.argv[3], sys.argv[3:])
"""


def _as(user: pwd.struct_passwd | None, command: list[object]) -> list[str]:
    uid, gid = (user.pw_uid, user.pw_gid) if user is not None else (0, 0)
    return [sys.executable, "-c", _BECOME, str(uid), str(gid), *map(str, command)]


def _run(command: list[object], user: pwd.struct_passwd | None) -> None:
    done = subprocess.run(_as(user, command), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)


def programs() -> Path | None:
    """The folder of the newest server on this machine."""
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda p: float(p.parts[-3])
    )
    if found:
        return found[-1].parent
    on_path = shutil.which("postgres")
    return Path(on_path).resolve().parent if on_path else None


def _memory() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _user() -> pwd.struct_passwd | None:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    return None
