"""A real PostgreSQL for tests: started by the test session, gone with it.

`TEST_PG_DSN` names a server to use instead. Otherwise the newest one installed on this machine is
started on a socket of its own, with its data in memory and without fsync: tests of durability kill
processes, not machines.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

MISSING = (
    "PostgreSQL is needed for these tests and was not found. Install it"
    " (on Debian and Ubuntu: apt-get install postgresql), or set TEST_PG_DSN."
)
_PR_SET_PDEATHSIG = 1


class Server:
    """A server, and how its databases are named."""

    def __init__(self, dsn: str, restart: Callable[[], None] | None = None) -> None:
        self.dsn = dsn
        self._restart = restart
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
        assert self._restart is not None, "a server that was given is not restarted"
        self._restart()

    def drop(self, address: str) -> None:
        name = name_in(address)
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(f"drop database if exists {name} with (force)")


def name_in(address: str) -> str:
    """The database that an address names."""
    return str(psycopg.conninfo.conninfo_to_dict(address)["dbname"])


@contextmanager
def server() -> Iterator[Server]:
    """A running server."""
    given = os.environ.get("TEST_PG_DSN")
    if given:
        yield Server(given)
        return
    programs = _programs()
    if programs is None:
        raise RuntimeError(MISSING)
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir=_memory()))
    user = _user()
    try:
        if user is not None:
            os.chown(folder, user.pw_uid, user.pw_gid)
        _run([programs / "initdb", "-D", folder / "data", "-A", "trust", "-U", "postgres",
              "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"], user)  # fmt: skip
        process = _start(programs, folder, user)

        def stop() -> None:
            process.send_signal(signal.SIGINT)
            process.wait()

        def restart() -> None:
            nonlocal process
            stop()
            process = _start(programs, folder, user)

        try:
            yield Server(f"host={folder} user=postgres dbname=postgres", restart)
        finally:
            stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _start(programs: Path, folder: Path, user: pwd.struct_passwd | None) -> subprocess.Popen[bytes]:
    options = {
        "listen_addresses": "",
        "unix_socket_directories": str(folder),
        "fsync": "off",
        "full_page_writes": "off",
        "max_connections": "200",
        "shared_buffers": "64MB",
    }
    arguments = [f"-c{name}={value}" for name, value in options.items()]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [programs / "postgres", "-D", folder / "data", *arguments],
            stdout=subprocess.DEVNULL,
            stderr=log,
            preexec_fn=lambda: _become(user),  # noqa: PLW1509 — no thread runs yet
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


def _become(user: pwd.struct_passwd | None) -> None:
    """In the child: not root, and gone when the tests are."""
    if user is not None:
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)


def _run(command: list[object], user: pwd.struct_passwd | None) -> None:
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: _become(user),
    )
    if done.returncode:
        raise RuntimeError(done.stderr)


def _programs() -> Path | None:
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
