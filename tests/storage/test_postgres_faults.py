"""What can go wrong with a server: a clear error or a correct retry, and nothing twice.

Every server here is a real one, but for the one that is too old: that is a few bytes on loopback,
which the real driver takes for it.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

import tertulia
from tertulia import Settings, Source, Store, StoreFull, StoreUnavailable
from tertulia.errors import SchemaMismatch, StoreError
from tertulia.storage.postgres import database
from tertulia.testing.fault_points import (
    Moment,
    watch,
)
from tertulia.testing.fixtures import (
    said,
    texts,
    until,
)
from tests.records.store_inspection import log_of, without_index
from tests.servers.postgres import Server, name_in, own_server
from tests.servers.proxy import PATIENCE, Cut, Proxy, proxy

ANNA = Source("telegram", "anna", user_id="anna")


def opened(where: str, **settings: Any) -> Store:
    chosen = {"zone": "UTC", "busy_seconds": 5, **settings}
    return without_index(tertulia.open(where, settings=Settings(**chosen)))


@contextmanager
def refused(kind: type[StoreError], words: str) -> Iterator[None]:
    """What is raised is of a kind, says what is wrong, and what to do next."""
    with pytest.raises(kind, match=words) as caught:
        yield
    assert caught.value.hint


@pytest.fixture
def address(postgres: Server) -> Iterator[str]:
    """An empty store."""
    address = postgres.database(postgres.template)
    yield address
    postgres.drop(address)


@contextmanager
def as_owner(address: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(address, autocommit=True) as connection:
        yield connection


def terminate_all(address: str) -> int:
    """Cut every other connection to a database; how many there were."""
    with as_owner(address) as connection:
        found = connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        ).fetchall()
        return len(found)


class TestNotLetIn:
    def test_a_server_that_is_not_there(self, tmp_path: Path) -> None:
        with refused(StoreUnavailable, "cannot be reached"):
            opened(f"postgresql:///talk?host={tmp_path}")

    def test_a_database_that_does_not_exist(self, postgres: Server) -> None:
        with refused(StoreUnavailable, "there_is_none"):
            opened(postgres.address("there_is_none"))

    def test_a_wrong_password(self) -> None:
        hba = "local all postgres trust\nlocal all all scram-sha-256\n"
        with own_server(hba) as server, as_owner(server.dsn) as owner:
            owner.execute("create role talker login password 'a-right-one'")
            owner.execute("create database talk owner talker")
            place = f"/talk?host={server.folder}"
            with refused(StoreUnavailable, "password authentication failed") as _:
                opened(f"postgresql://talker:a-wrong-one@{place}")
            with pytest.raises(StoreUnavailable) as caught:
                opened(f"postgresql://talker:a-wrong-one@{place}")
            assert "a-wrong-one" not in str(caught.value)
            with opened(f"postgresql://talker:a-right-one@{place}") as store:
                store.sessions.open(ANNA)

    def test_a_role_that_may_make_no_tables(self, postgres: Server) -> None:
        address = postgres.database()
        with as_owner(address) as owner:
            owner.execute("drop role if exists visitor")
            owner.execute("create role visitor login")
        visitor = address.replace("//postgres@", "//visitor@")
        with refused(StoreUnavailable, "may not do that"):
            opened(visitor)
        with opened(address) as store:
            session = store.sessions.open(ANNA)
        with refused(StoreUnavailable, "may not do that"):
            opened(visitor)
        with as_owner(address) as owner:
            owner.execute("grant select on all tables in schema public to visitor")
        with opened(visitor) as store:
            assert store.transcript(session.id).load() == []
            with refused(StoreUnavailable, "may not do that"):
                store.transcript(session.id).append(said("one"))
            assert store.transcript(session.id).load() == []
        postgres.drop(address)

    def test_a_server_that_is_too_old(self) -> None:
        with old_server("12.22") as address, refused(SchemaMismatch, "PostgreSQL 12; .* needs 14"):
            opened(address)

    def test_too_many_connections(self, postgres: Server) -> None:
        """Those that it has do the work of all."""
        address = postgres.database(postgres.template)
        with as_owner(address) as owner:
            owner.execute("drop role if exists modest")
            owner.execute("create role modest login connection limit 2")
            owner.execute("grant all on all tables in schema public to modest")
            owner.execute("grant all on all sequences in schema public to modest")
        modest = address.replace("//postgres@", "//modest@")
        with opened(modest, busy_seconds=30) as store:
            session = store.sessions.open(ANNA)
            in_threads(12, lambda n: store.transcript(session.id).append(said(str(n))))
            assert sorted(texts(store.transcript(session.id)), key=int) == [*map(str, range(12))]
            with all_connections(modest), refused(StoreUnavailable, "too many connections"):
                opened(modest)
        postgres.drop(address)


@contextmanager
def all_connections(address: str) -> Iterator[None]:
    """Take all that are left."""
    with ExitStack() as stack:
        with contextlib.suppress(psycopg.OperationalError):
            while True:
                stack.enter_context(psycopg.connect(address))
        yield


@contextmanager
def old_server(version: str) -> Iterator[str]:
    """Something on loopback that lets everybody in and says that it is of that version."""

    def message(kind: bytes, body: bytes) -> bytes:
        return kind + struct.pack("!i", len(body) + 4) + body

    welcome = (
        message(b"R", struct.pack("!i", 0))
        + message(b"S", b"server_version\0" + version.encode() + b"\0")
        + message(b"S", b"client_encoding\0UTF8\0")
        + message(b"K", struct.pack("!ii", 1, 1))
        + message(b"Z", b"I")
    )

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client:
                client.settimeout(PATIENCE)
                client.recv(65_536)
                client.sendall(welcome)
                client.recv(65_536)  # the goodbye

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        port = listener.getsockname()[1]
        yield f"postgresql://anybody@127.0.0.1:{port}/talk?sslmode=disable&gssencmode=disable"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(PATIENCE)


def in_threads(
    count: int, work: Callable[[int], object], meanwhile: Callable[[], None] = lambda: None
) -> None:
    """Run `work` in so many threads; what one of them raised is raised."""
    problems: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as problem:  # noqa: BLE001 — raised again below
            problems.append(problem)

    threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(count)]
    for thread in threads:
        thread.start()
    meanwhile()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive(), "it takes too long"
    if problems:
        raise problems[0]


class TestReadOnly:
    def test_a_database_that_may_only_be_read(self, address: str) -> None:
        with opened(address) as store:
            session = store.sessions.open(ANNA)
            store.transcript(session.id).append(said("one"))
        with as_owner(address) as owner:
            name = name_in(address)
            owner.execute(f"alter database {name} set default_transaction_read_only = on")
        with opened(address) as store:
            assert texts(store.transcript(session.id)) == ["one"]
            with refused(StoreUnavailable, "may only be read"):
                store.transcript(session.id).append(said("two"))
            assert texts(store.transcript(session.id)) == ["one"]

    def test_an_empty_database_that_may_only_be_read(self, postgres: Server) -> None:
        address = postgres.database()
        with as_owner(address) as owner:
            name = name_in(address)
            owner.execute(f"alter database {name} set default_transaction_read_only = on")
        with refused(StoreUnavailable, "may only be read"):
            opened(address)
        postgres.drop(address)

    def test_a_replica(self) -> None:
        with own_server() as server:
            address = server.database()
            with opened(address) as store:
                session = store.sessions.open(ANNA)
                store.transcript(session.id).append(said("one"))
            server.stop()
            (server.folder / "data" / "standby.signal").touch()
            server.start()
            with opened(address) as store:
                assert texts(store.transcript(session.id)) == ["one"]
                with refused(StoreUnavailable, "may only be read"):
                    store.transcript(session.id).append(said("two"))


class TestTimeouts:
    # Nobody waits for a lock but those that shall; any statement may be slow on a busy machine.
    @pytest.mark.parametrize(
        ("setting", "limit"), [("statement_timeout", "2s"), ("lock_timeout", "300ms")]
    )
    def test_a_statement_that_takes_too_long(self, address: str, setting: str, limit: str) -> None:
        with opened(address) as store:
            session = store.sessions.open(ANNA)
        with as_owner(address) as owner:
            owner.execute(f"alter database {name_in(address)} set {setting} = '{limit}'")
        with opened(address) as store, psycopg.connect(address) as holder:
            holder.execute("set lock_timeout = 0; set statement_timeout = 0")
            holder.execute("lock table sessions in access exclusive mode")
            with refused(StoreUnavailable, "gave up") as _:
                store.transcript(session.id).append(said("one"))
            with refused(StoreUnavailable, "gave up"):
                store.sessions.get(session.id)
            holder.rollback()
            store.transcript(session.id).append(said("two"))
            assert texts(store.transcript(session.id)) == ["two"]

    def test_a_session_that_idles_within_a_transaction(self, address: str) -> None:
        """The server ends it, so that nobody waits for its locks; the work runs again."""
        with opened(address, lease_seconds=0.3) as store:
            session = store.sessions.open(ANNA)
            pauses = [1.0]

            def pause(number: int, moment: Moment) -> None:
                if moment == "before" and pauses:
                    time.sleep(pauses.pop())

            watch(store, pause)
            store.transcript(session.id).append(said("one"))
            assert not pauses
            assert texts(store.transcript(session.id)) == ["one"]


class TestCutConnections:
    def test_between_transactions(self, address: str) -> None:
        with opened(address) as store:
            session = store.sessions.open(ANNA)
            # So that several lie in the pool.
            in_threads(6, lambda n: store.transcript(session.id).append(said(str(n))))
            for number in range(6, 9):
                assert terminate_all(address) > 0
                assert store.transcript(session.id).count() == number
                assert terminate_all(address) > 0
                store.transcript(session.id).append(said(str(number)))
            found = sorted(texts(store.transcript(session.id)), key=int)
            assert found == [*map(str, range(9))]

    def test_within_a_transaction(self, address: str) -> None:
        with opened(address) as store:
            session = store.sessions.open(ANNA)
            cuts = [3, 2, 1]

            def cut(number: int, moment: Moment) -> None:
                if moment == "before" and cuts:
                    cuts.pop()
                    assert terminate_all(address) > 0

            watch(store, cut)
            store.transcript(session.id).append(said("one"))
            assert cuts == []
            assert texts(store.transcript(session.id)) == ["one"]

    def test_within_a_read(self, address: str) -> None:
        with opened(address) as store:
            session = store.sessions.open(ANNA)
            cuts = [1]

            def work(tx: Any) -> Any:
                found = tx.one("session_by_id", {"id": session.id})
                if cuts:
                    cuts.pop()
                    terminate_all(address)
                    return tx.one("session_by_id", {"id": session.id})
                return found

            assert store.context.db.read(work) is not None
            assert cuts == []


class TestCommitWithoutAnswer:
    """The line is cut in the middle of a commit, before or after the server has heard of it."""

    @pytest.fixture
    def line(self, address: str) -> Iterator[Proxy]:
        with proxy(address) as line:
            yield line

    @staticmethod
    def cut_once(store: Store, line: Proxy, cut: Cut, *, for_good: bool = False) -> None:
        done: list[int] = []

        def at(number: int, moment: Moment) -> None:
            if moment == "before" and not done:
                done.append(number)
                line.is_open = not for_good
                line.cut_at_next(cut)

        watch(store, at)

    @pytest.mark.parametrize("cut", ["request", "answer", "farewell"])
    def test_a_message_is_stored_once(self, line: Proxy, cut: Cut) -> None:
        with opened(line.address) as store:
            session = store.sessions.open(ANNA)
            self.cut_once(store, line, cut)
            assert store.transcript(session.id).append(said("one")) == 1
            assert line.was_cut.wait(PATIENCE)
            assert store.transcript(session.id).append(said("two")) == 2
            assert texts(store.transcript(session.id)) == ["one", "two"]
            assert store.check() == []

    def test_a_pipeline_that_cannot_be_ended_is_a_lost_connection(
        self, address: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As after a farewell of the server whose end of the line is not seen yet."""
        pipelines, failures = database._pipeline, iter(["once"])

        @contextmanager
        def busy(connection: database.Connection) -> Iterator[None]:
            with pipelines(connection):
                yield
            for _ in failures:
                raise psycopg.OperationalError("cannot exit pipeline mode while busy")

        with opened(address) as store:
            session = store.sessions.open(ANNA)
            monkeypatch.setattr(database, "_pipeline", busy)
            assert store.transcript(session.id).append(said("one")) == 1
            assert next(failures, None) is None
            failures = iter(["once more"])
            assert texts(store.transcript(session.id)) == ["one"]
            assert next(failures, None) is None

    @pytest.mark.parametrize("cut", ["request", "answer", "farewell"])
    @pytest.mark.parametrize("step", [1, 2, 3])
    def test_a_turn_goes_on(self, line: Proxy, address: str, cut: Cut, step: int) -> None:
        """Whichever of its transactions it is: entering, a delivery, the answer."""
        with opened(line.address) as store:

            def at(number: int, moment: Moment) -> None:
                if (number, moment) == (step, "before") and not line.was_cut.is_set():
                    line.cut_at_next(cut)

            watch(store, at)
            with store.turn(ANNA, "hello", message_id="1") as turn:
                turn.deliver("one moment", delivery="d1")
                turn.add_assistant("hi", deliver="origin")
            assert line.was_cut.is_set()
            assert [row.content for row in log_of(store, turn.session)] == ["hello", "hi"]
            parcels = store.outbox.find().items
            assert sorted(parcel.body["text"] for parcel in parcels) == ["hi", "one moment"]
            with store.turn(ANNA, "hello", message_id="1") as again:
                assert (again.duplicate, again.answer) == (True, "hi")
            assert store.check() == []

    @pytest.mark.parametrize(("cut", "stored"), [("request", []), ("answer", ["one"])])
    def test_where_nobody_can_be_asked_the_outcome_is_unknown(
        self, line: Proxy, address: str, cut: Cut, stored: list[str]
    ) -> None:
        with opened(line.address, busy_seconds=2) as store:
            session = store.sessions.open(ANNA)
            self.cut_once(store, line, cut, for_good=True)
            with pytest.raises(StoreUnavailable, match="cannot be told") as caught:
                store.transcript(session.id).append(said("one"))
            assert caught.value.outcome == "unknown"
            assert "look" in (caught.value.hint or "")
            with opened(address) as direct:
                assert texts(direct.transcript(session.id)) == stored
            line.is_open = True
            assert texts(store.transcript(session.id)) == stored
            store.transcript(session.id).append(said("two"))
            assert texts(store.transcript(session.id)) == [*stored, "two"]


@pytest.fixture(scope="module")
def own() -> Iterator[Server]:
    """A server that is stopped and started, and so nobody else's."""
    with own_server() as server:
        yield server


class TestRestart:
    def test_between_calls(self, own: Server) -> None:
        with opened(own.database(), busy_seconds=30) as store:
            session = store.sessions.open(ANNA)
            in_threads(5, lambda n: store.transcript(session.id).append(said(str(n))))
            own.restart()
            assert store.transcript(session.id).count() == 5
            own.restart()
            store.transcript(session.id).append(said("5"))
            assert store.transcript(session.id).count() == 6

    def test_while_it_is_down(self, own: Server) -> None:
        with opened(own.database(), busy_seconds=1) as store:
            session = store.sessions.open(ANNA)
            own.stop()
            try:
                with refused(StoreUnavailable, "connection"):
                    store.transcript(session.id).append(said("in vain"))
                with refused(StoreUnavailable, "connection"):
                    store.transcript(session.id).load()
            finally:
                own.start()
            until(lambda: _is_back(store), "it answers again")
            store.transcript(session.id).append(said("at last"))
            assert texts(store.transcript(session.id)) == ["at last"]

    def test_under_load(self, own: Server) -> None:
        """What was acknowledged is there once; what was refused is there once or not at all."""
        acknowledged: list[str] = []
        refusals: list[str] = []
        is_over = threading.Event()
        with opened(own.database(), busy_seconds=30) as store:

            def write(number: int) -> None:
                session = store.sessions.open(Source("telegram", str(number)))
                count = 0
                while not is_over.is_set():
                    text = f"{number} {count}"
                    count += 1
                    try:
                        store.transcript(session.id).append(said(text))
                        acknowledged.append(text)
                    except StoreUnavailable as problem:
                        if problem.data.get("outcome") != "unknown":
                            raise
                        refusals.append(text)

            def wait_for_more() -> None:
                before = len(acknowledged)
                until(lambda: len(acknowledged) > before + 50, "they write")

            def disturb() -> None:
                try:
                    for _ in range(2):
                        wait_for_more()
                        own.restart()
                    wait_for_more()
                finally:
                    is_over.set()

            in_threads(4, write, meanwhile=disturb)
            stored = [
                text
                for session in store.sessions.find().items
                for text in texts(store.transcript(session.id))
            ]
            assert len(stored) == len({*stored}), "something is there twice"
            assert {*acknowledged} <= {*stored} <= {*acknowledged, *refusals}
            assert store.check() == []


def _is_back(store: Store) -> bool:
    try:
        store.sessions.count()
    except StoreUnavailable:
        return False
    return True


class TestFullDisk:
    @pytest.fixture
    def small(self, own: Server) -> Iterator[Path]:
        """A file system of a few megabytes that the server may write to."""
        folder = own.folder / "small"
        folder.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)]
        if os.geteuid() != 0 or subprocess.run(mount, check=False).returncode != 0:
            pytest.skip("a file system can be mounted by root only")
        data = (own.folder / "data").stat()
        os.chown(folder, data.st_uid, data.st_gid)
        yield folder
        with as_owner(own.dsn) as owner:
            owner.execute("drop database if exists talk with (force)")
            owner.execute("drop tablespace small")
        subprocess.run(["umount", "-l", str(folder)], check=True)

    def test_nothing_acknowledged_is_lost(self, own: Server, small: Path) -> None:
        with as_owner(own.dsn) as owner:
            owner.execute(f"create tablespace small location '{small}'")
            owner.execute("create database talk tablespace small")
        ballast = small / "ballast"
        acknowledged: list[str] = []
        with opened(own.address("talk")) as store:
            ballast.write_bytes(bytes(2_000_000))
            session = store.sessions.open(ANNA)
            transcript = store.transcript(session.id)

            def fill_up() -> None:
                for number in range(100_000):
                    # Nothing that PostgreSQL can make smaller.
                    text = f"{number} {random.randbytes(2000).hex()}"
                    transcript.append(said(text))
                    acknowledged.append(text)

            with refused(StoreFull, "no space left"):
                fill_up()
            for _ in range(5):
                with refused(StoreFull, "no space left"):
                    transcript.extend([said(random.randbytes(9000).hex()) for _ in range(50)])
            assert texts(transcript) == acknowledged
            ballast.unlink()
            transcript.append(said("again"))
            assert texts(transcript) == [*acknowledged, "again"]
            assert store.check() == []
