"""PostgreSQL that is not there, says no, or breaks off: a clear error or a right retry, nothing twice."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import tertulia
from tertulia import SchemaMismatch, Settings, Source, StoreUnavailable
from tests.servers.postgres import Server

ANA = Source("telegram", "42", user_id="42")
QUICK = Settings(busy_seconds=5)


@pytest.fixture
def address(postgres: Server) -> Iterator[str]:
    made = postgres.database()
    yield made
    postgres.drop(made)


def test_six_programs_that_start_at_once_make_one_store(address: str) -> None:
    program = (
        "import sys, tertulia\n"
        "store = tertulia.open(sys.argv[1])\n"
        "session = store.sessions.open(tertulia.Source('telegram', '42', user_id='42'))\n"
        "store.transcript(session.id).append({'role': 'user', 'content': sys.argv[2]})\n"
        "store.close()\n"
    )
    children = [
        subprocess.Popen([sys.executable, "-c", program, address, str(n)]) for n in range(6)
    ]
    assert [child.wait() for child in children] == [0] * 6
    with tertulia.open(address) as store:
        (session,) = store.sessions.find().items
        said = {message["content"] for message in store.transcript(session.id).load()}
        assert said == {str(n) for n in range(6)}
    with psycopg.connect(address) as connection:
        assert connection.execute("select count(*) from installation where name = 'secret'").fetchone() == (1,)


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable) as caught:
        tertulia.open(f"postgresql://x@/x?host={tmp_path}", settings=QUICK)
    assert caught.value.hint
    assert caught.value.retryable


def test_a_database_that_is_not_there(postgres: Server) -> None:
    with pytest.raises(StoreUnavailable, match="no such database|cannot be reached"):
        tertulia.open(postgres.address("nowhere"), settings=QUICK)


def test_a_password_is_never_told(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable) as caught:
        tertulia.open(f"postgresql://ana:hunter2@/x?host={tmp_path}", settings=QUICK)
    assert "hunter2" not in str(caught.value)


def test_a_role_without_rights(postgres: Server, address: str) -> None:
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("drop role if exists nobody_here")
        connection.execute("create role nobody_here login")
        connection.execute("revoke all on schema public from public")
    with pytest.raises(StoreUnavailable, match="may not do that"):
        tertulia.open(address.replace("//postgres@", "//nobody_here@"), settings=QUICK)


def test_a_store_of_a_newer_program(address: str) -> None:
    tertulia.open(address).close()
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("insert into migrations values ('9999_future', 'now')")
    with pytest.raises(SchemaMismatch, match="newer Tertulia"):
        tertulia.open(address)


def test_a_statement_that_takes_too_long_stores_nothing(address: str) -> None:
    with tertulia.open(address, settings=QUICK) as store:
        session = store.sessions.open(ANA)
        with psycopg.connect(address, autocommit=True) as connection:
            name = psycopg.conninfo.conninfo_to_dict(address)["dbname"]
            connection.execute(f"alter database {name} set statement_timeout = '100ms'")  # type: ignore[arg-type]
            with connection.transaction():
                connection.execute("lock table messages in exclusive mode")
                with tertulia.open(address, settings=QUICK) as other, pytest.raises(StoreUnavailable):
                    other.transcript(session.id).append({"role": "user", "content": "late"})
        assert store.transcript(session.id).load() == []


def test_a_connection_that_was_cut_in_the_pool_is_replaced(address: str) -> None:
    with tertulia.open(address, settings=QUICK) as store:
        session = store.sessions.open(ANA)
        for number in range(5):
            with psycopg.connect(address, autocommit=True) as connection:
                connection.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity"
                    " where datname = current_database() and pid <> pg_backend_pid()"
                )
            store.transcript(session.id).append({"role": "user", "content": str(number)})
            assert len(store.transcript(session.id).load()) == number + 1


class Cutter:
    """A wire to the server that is cut right after a commit was sent through it."""

    def __init__(self, socket_path: str, folder: Path, *, reaches: bool) -> None:
        self._target = socket_path
        self._reaches = reaches
        self.cuts = 0
        self.is_armed = False
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / ".s.PGSQL.5432"))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._target)
            threading.Thread(target=self._pass, args=(client, server, True), daemon=True).start()
            threading.Thread(target=self._pass, args=(server, client, False), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, is_out: bool) -> None:
        while True:
            try:
                data = source.recv(65536)
            except OSError:
                data = b""
            if is_out and self.is_armed and b"commit" in data:
                self.is_armed = False
                self.cuts += 1
                if self._reaches:
                    target.sendall(data)
                    target.recv(1, socket.MSG_PEEK)  # the server has answered: it is committed
                data = b""
            if not data:
                for end in (source, target):
                    end.close()
                return
            try:
                target.sendall(data)
            except OSError:
                return


@pytest.mark.parametrize("reaches", [True, False], ids=["committed", "not committed"])
def test_a_commit_whose_answer_is_lost_is_stored_once(
    postgres: Server, address: str, tmp_path: Path, reaches: bool
) -> None:
    tertulia.open(address).close()
    known = psycopg.conninfo.conninfo_to_dict(address)
    cutter = Cutter(f"{known['host']}/.s.PGSQL.5432", tmp_path, reaches=reaches)
    through = f"postgresql://postgres@/{known['dbname']}?host={tmp_path}"
    try:
        with tertulia.open(through, settings=QUICK) as store:
            session = store.sessions.open(ANA)
            talk = store.transcript(session.id)
            for number in range(5):
                cutter.is_armed = True
                talk.append({"role": "user", "content": str(number)})
            assert cutter.cuts == 5
            assert [message["content"] for message in talk.load()] == list("01234")
    finally:
        cutter.close()
