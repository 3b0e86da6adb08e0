"""Every refusal of a server raises a Tertulia error with a hint.

Every server here is a real one, except the one that is too old: that is a few bytes on loopback,
which the real driver takes for a server.
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
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest

from tertulia import StoreFull, StoreUnavailable
from tertulia.errors import SchemaMismatch
from tertulia.testing.fault_points import Moment, watch_commits
from tertulia.testing.fixtures import texts, user_message, wait_until
from tests.servers.postgres import Server, name_in, own_server
from tests.servers.proxy import TIMEOUT
from tests.storage.postgres.server_stores import ANNA, as_owner, in_threads, opened, refused


@pytest.mark.check
class TestRefusedConnection:
    def test_missing_server_is_unavailable(self, tmp_path: Path) -> None:
        with refused(StoreUnavailable, "cannot be reached"):
            opened(f"postgresql:///talk?host={tmp_path}")

    def test_missing_database_is_unavailable(self, postgres: Server) -> None:
        with refused(StoreUnavailable, "there_is_none"):
            opened(postgres.address("there_is_none"))

    def test_wrong_password_is_refused_and_not_shown(self) -> None:
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

    def test_role_without_privileges_is_refused(self, postgres: Server) -> None:
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
                store.transcript(session.id).append(user_message("one"))
            assert store.transcript(session.id).load() == []
        postgres.drop(address)

    def test_too_old_server_is_refused(self) -> None:
        with old_server("12.22") as address, refused(SchemaMismatch, "PostgreSQL 12; .* needs 14"):
            opened(address)

    def test_connection_limit_slows_but_loses_nothing(self, postgres: Server) -> None:
        """The allowed connections do the work of all threads."""
        address = postgres.database(postgres.template)
        with as_owner(address) as owner:
            owner.execute("drop role if exists modest")
            owner.execute("create role modest login connection limit 2")
            owner.execute("grant all on all tables in schema public to modest")
            owner.execute("grant all on all sequences in schema public to modest")
        modest = address.replace("//postgres@", "//modest@")
        with opened(modest, busy_seconds=30) as store:
            session = store.sessions.open(ANNA)
            in_threads(12, lambda n: store.transcript(session.id).append(user_message(str(n))))
            assert sorted(texts(store.transcript(session.id)), key=int) == [*map(str, range(12))]
            with all_connections(modest), refused(StoreUnavailable, "too many connections"):
                opened(modest)
        postgres.drop(address)


@contextmanager
def all_connections(address: str) -> Iterator[None]:
    """Use up all remaining connections."""
    with ExitStack() as stack:
        with contextlib.suppress(psycopg.OperationalError):
            while True:
                stack.enter_context(psycopg.connect(address))
        yield


@contextmanager
def old_server(version: str) -> Iterator[str]:
    """Yield the address of a fake server that accepts every login and reports this version."""

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
                client.settimeout(TIMEOUT)
                client.recv(65_536)
                client.sendall(welcome)
                client.recv(65_536)  # the Terminate message

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        port = listener.getsockname()[1]
        yield f"postgresql://anybody@127.0.0.1:{port}/talk?sslmode=disable&gssencmode=disable"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(TIMEOUT)


class TestReadOnly:
    def test_read_only_database_refuses_writes(self, address: str) -> None:
        with opened(address) as store:
            session = store.sessions.open(ANNA)
            store.transcript(session.id).append(user_message("one"))
        with as_owner(address) as owner:
            name = name_in(address)
            owner.execute(f"alter database {name} set default_transaction_read_only = on")
        with opened(address) as store:
            assert texts(store.transcript(session.id)) == ["one"]
            with refused(StoreUnavailable, "may only be read"):
                store.transcript(session.id).append(user_message("two"))
            assert texts(store.transcript(session.id)) == ["one"]

    def test_empty_read_only_database_is_refused(self, postgres: Server) -> None:
        address = postgres.database()
        with as_owner(address) as owner:
            name = name_in(address)
            owner.execute(f"alter database {name} set default_transaction_read_only = on")
        with refused(StoreUnavailable, "may only be read"):
            opened(address)
        postgres.drop(address)

    @pytest.mark.check
    def test_replica_refuses_writes(self) -> None:
        with own_server() as server:
            address = server.database()
            with opened(address) as store:
                session = store.sessions.open(ANNA)
                store.transcript(session.id).append(user_message("one"))
            server.stop()
            (server.folder / "data" / "standby.signal").touch()
            server.start()
            with opened(address) as store:
                assert texts(store.transcript(session.id)) == ["one"]
                with refused(StoreUnavailable, "may only be read"):
                    store.transcript(session.id).append(user_message("two"))


class TestTimeouts:
    # Only the tested call waits for a lock; any statement may be slow on a busy machine.
    @pytest.mark.check
    @pytest.mark.parametrize(
        ("setting", "limit"), [("statement_timeout", "2s"), ("lock_timeout", "300ms")]
    )
    def test_statement_timeout_stores_nothing(self, address: str, setting: str, limit: str) -> None:
        with opened(address) as store:
            session = store.sessions.open(ANNA)
        with as_owner(address) as owner:
            owner.execute(f"alter database {name_in(address)} set {setting} = '{limit}'")
        with opened(address, lease_seconds=1) as store, psycopg.connect(address) as holder:
            holder.execute("set lock_timeout = 0; set statement_timeout = 0")
            holder.execute("lock table sessions in access exclusive mode")
            with refused(StoreUnavailable, "gave up") as _:
                store.transcript(session.id).append(user_message("one"))
            with refused(StoreUnavailable, "gave up"):
                store.sessions.get(session.id)
            holder.rollback()
            store.transcript(session.id).append(user_message("two"))
            assert texts(store.transcript(session.id)) == ["two"]

    def test_idle_transaction_is_ended_and_runs_again(self, address: str) -> None:
        """The server ends it, so that no other process waits for its locks; the work runs again."""
        with opened(address, lease_seconds=0.3) as store:
            session = store.sessions.open(ANNA)
            pauses = [1.0]

            def pause(number: int, moment: Moment) -> None:
                if moment == "before" and pauses:
                    time.sleep(pauses.pop())

            watch_commits(store, pause)
            store.transcript(session.id).append(user_message("one"))
            assert not pauses
            assert texts(store.transcript(session.id)) == ["one"]


@pytest.mark.check
class TestFullDisk:
    @pytest.fixture
    def small(self, own: Server) -> Iterator[Path]:
        """A small file system that the server may write to."""
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

    def test_looking_for_much_space_writes_little(self, own: Server) -> None:
        with as_owner(own.dsn) as owner:
            owner.execute("create database spacious")
            owner.execute("alter database spacious set temp_file_limit = '90MB'")
        with opened(own.address("spacious")) as store:
            assert store.has_space(1 << 28)
            assert store.has_space(1 << 62)

    def test_each_size_of_space_is_looked_for(self, own: Server) -> None:
        with as_owner(own.dsn) as owner:
            owner.execute("create database narrow")
            owner.execute("alter database narrow set temp_file_limit = '10MB'")
        with opened(own.address("narrow")) as store:
            assert store.has_space(1 << 20)
            with pytest.raises(StoreUnavailable, match="temp_file_limit"):
                assert store.has_space(1 << 25)
            assert store.has_space(1 << 20)

    def test_full_disk_loses_nothing_acknowledged(self, own: Server, small: Path) -> None:
        with as_owner(own.dsn) as owner:
            owner.execute(f"create tablespace small location '{small}'")
            owner.execute("create database talk tablespace small")
        ballast = small / "ballast"
        acknowledged: list[str] = []
        with opened(own.address("talk")) as store:
            ballast.write_bytes(bytes(2_000_000))
            assert store.has_space(1_048_576)
            session = store.sessions.open(ANNA)
            transcript = store.transcript(session.id)

            def fill_up() -> None:
                for number in range(100_000):
                    # Random text, which PostgreSQL cannot compress.
                    text = f"{number} {random.randbytes(2000).hex()}"
                    transcript.append(user_message(text))
                    acknowledged.append(text)

            with refused(StoreFull, "no space left"):
                fill_up()
            for _ in range(5):
                with refused(StoreFull, "no space left"):
                    transcript.extend(
                        [user_message(random.randbytes(9000).hex()) for _ in range(50)]
                    )
            assert texts(transcript) == acknowledged
            wait_until(lambda: not store.has_space(1_048_576), "the lack of space is noticed")
            ballast.unlink()
            wait_until(lambda: store.has_space(1_048_576), "there is space again")
            transcript.append(user_message("again"))
            assert texts(transcript) == [*acknowledged, "again"]
            assert store.check() == []
