"""Opening a file that is not a store, or cannot be one now."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import apsw
import pytest

import tertulia
from tertulia import NotAStore, SchemaMismatch, StoreUnavailable
from tertulia.storage.sqlite import open as sqlite_open
from tertulia.testing import Handles
from tertulia.testing.fixtures import dm, user_message
from tests.storage.child_process import ChildProcess
from tests.storage.sqlite.store_files import (
    SETTINGS,
    create_store,
    error_of,
    opened,
    refused,
    unchanged,
)
from tests.storage.watched_disk import Disk, fail


class TestForeignFile:
    """A file that is not a store, or cannot be one now."""

    @pytest.mark.parametrize(
        "content",
        [
            pytest.param(b"\n", id="one byte"),
            pytest.param(b"hello", id="a word"),
            pytest.param(b"hello\n" * 10_000, id="a text"),
            pytest.param(bytes(8192), id="zeros"),
            pytest.param(b"SQLite format 3\x00", id="a head alone"),
            pytest.param(b"SQLite format 3\x00" + b"x" * 5000, id="a false head"),
            pytest.param(b"PK\x03\x04" * 5000, id="an archive"),
        ],
    )
    def test_other_content_is_refused_and_unchanged(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "notes.txt"
        path.write_bytes(content)
        with unchanged(path), refused(NotAStore, retryable=False):
            opened(path)
        assert os.listdir(tmp_path) == ["notes.txt"]

    @pytest.mark.parametrize("mode", ["delete", "wal"])
    def test_database_of_another_program_is_refused(self, tmp_path: Path, mode: str) -> None:
        path = tmp_path / "other.db"
        connection = apsw.Connection(str(path))
        connection.pragma("journal_mode", mode)
        connection.execute("create table birds (name); insert into birds values ('wren')")
        with unchanged(path), refused(NotAStore):
            opened(path)
        connection.close()
        with unchanged(path), refused(NotAStore):
            opened(path)
        assert apsw.Connection(str(path)).execute("select * from birds").fetchall() == [("wren",)]

    def test_empty_database_of_another_program_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "other.db"
        connection = apsw.Connection(str(path))
        connection.execute("pragma application_id = 77")
        connection.close()
        with unchanged(path), refused(NotAStore):
            opened(path)

    def test_hot_journal_of_another_program_is_refused(self, tmp_path: Path) -> None:
        """A hot journal: only a process that may write can read the file."""
        path, copy = tmp_path / "other.db", tmp_path / "copy.db"
        connection = apsw.Connection(str(path))
        connection.execute("pragma cache_size = 1; create table birds (name)")
        connection.execute("begin")
        connection.execute(
            "with recursive n (i) as (select 1 union all select i + 1 from n where i < 2000)"
            " insert into birds select printf('%200d', i) from n"
        )
        shutil.copy(path, copy)
        shutil.copy(f"{path}-journal", f"{copy}-journal")
        connection.execute("rollback")
        journal = Path(f"{copy}-journal")
        with unchanged(copy), unchanged(journal), refused(NotAStore):
            opened(copy)
        assert apsw.Connection(str(copy)).execute("select * from birds").fetchall() == []

    def test_newer_store_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "talk.db"
        session_id = create_store(path)
        connection = apsw.Connection(str(path))
        connection.execute("insert into migrations values ('9999_the_future', '2030-01-01')")
        connection.close()
        with unchanged(path), refused(SchemaMismatch, retryable=False):
            opened(path)
        connection = apsw.Connection(str(path))
        connection.execute("delete from migrations where name = '9999_the_future'")
        connection.close()
        with opened(path) as store:
            assert store.transcript(session_id).count() == 21

    def test_newer_store_in_use_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "talk.db"
        create_store(path)
        connection = apsw.Connection(str(path))
        connection.execute("insert into migrations values ('9999_the_future', '2030-01-01')")
        log = Path(f"{path}-wal")
        with unchanged(path), unchanged(log), refused(SchemaMismatch):
            opened(path)
        connection.close()

    def test_folder_is_refused(self, tmp_path: Path) -> None:
        with refused(NotAStore):
            opened(tmp_path)
        assert os.listdir(tmp_path) == []

    def test_missing_folder_is_unavailable(self, tmp_path: Path) -> None:
        with refused(StoreUnavailable):
            opened(tmp_path / "nowhere" / "talk.db")
        assert os.listdir(tmp_path) == []

    @pytest.mark.parametrize("name", ["a\x00b", "\ud800.db", "", ":memory:", "postgresql://x/y"])
    def test_invalid_file_name_is_refused(self, name: str) -> None:
        with pytest.raises(tertulia.Error) as caught:
            opened(name)
        assert caught.value.hint

    def test_too_long_name_is_unavailable(self, tmp_path: Path) -> None:
        with refused(StoreUnavailable):
            opened(tmp_path / ("x" * 300))

    def test_device_is_unavailable(self) -> None:
        with refused(StoreUnavailable):
            opened("/dev/null")

    def test_store_created_during_the_check_is_accepted(self, tmp_path: Path) -> None:
        """The first query finds an empty file, the second a store, which is not foreign."""
        path = tmp_path / "talk.db"
        empty = apsw.Connection(str(path))
        empty.pragma("journal_mode", "wal")
        empty.close()
        creators: list[threading.Thread] = []

        def create(event: dict[str, Any]) -> None:
            if "application_id" in event["sql"] or "sqlite_schema" in event["sql"]:
                event["connection"].trace_v2(0)
                creator = threading.Thread(target=lambda: opened(path).close())
                creators.append(creator)
                creator.start()
                creator.join()

        def watch(connection: apsw.Connection) -> None:
            if not creators and connection.readonly("main"):
                connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, create)

        apsw.connection_hooks.append(watch)
        try:
            opened(path).close()
        finally:
            apsw.connection_hooks.remove(watch)
        assert len(creators) == 1

    @pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="looks into Linux's /proc")
    def test_failed_open_leaves_no_open_file(self, tmp_path: Path) -> None:
        path = tmp_path / "talk.db"
        with Disk() as disk:
            disk.before = lambda step: fail(step) if step.path.endswith("-wal") else None
            problem = error_of(lambda: opened(path))
            assert type(problem) is StoreUnavailable
            links = [os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
            files = [os.readlink(link) for link in links if os.path.lexists(link)]
        assert [name for name in files if name.startswith(str(path))] == []


@pytest.mark.check
class TestPermissions:
    """Files that this user may not write, or not even read."""

    @pytest.fixture
    def folder(self) -> Iterator[Path]:
        """A folder that everybody may read, unlike `tmp_path`."""
        folder = Path(tempfile.mkdtemp(prefix="tertulia-rights-"))
        folder.chmod(0o755)
        yield folder
        folder.chmod(0o755)
        shutil.rmtree(folder)

    def error_of_another_user(self, path: Path) -> tuple[str, str]:
        with ChildProcess("open_as_another_user", str(path)) as child:
            name, message, hint = child.read()
        assert name == "it was opened" or str(path) in message
        return name, hint

    @pytest.mark.parametrize(
        ("folder_mode", "file_mode"),
        [(0o777, 0o444), (0o555, 0o666), (0o555, 0o444), (0o777, 0o000)],
        ids=["a file to read", "a folder to read", "both to read", "not even to read"],
    )
    def test_store_without_write_permission_is_unavailable(
        self, folder: Path, folder_mode: int, file_mode: int
    ) -> None:
        inside = folder / "inside"
        inside.mkdir()
        path = inside / "talk.db"
        create_store(path)
        path.chmod(file_mode)
        inside.chmod(folder_mode)
        with unchanged(path) if os.geteuid() == 0 or file_mode else ExitStack():
            name, hint = self.error_of_another_user(path)
        assert name == "StoreUnavailable"
        assert "write" in hint
        inside.chmod(0o755)

    def test_new_store_in_read_only_folder_is_unavailable(self, folder: Path) -> None:
        inside = folder / "inside"
        inside.mkdir()
        inside.chmod(0o555)
        name, hint = self.error_of_another_user(inside / "talk.db")
        assert name == "StoreUnavailable"
        assert "folder" in hint
        assert os.listdir(inside) == []
        inside.chmod(0o755)


def test_files_are_private_to_their_owner(handles: Handles, tmp_path: Path) -> None:
    store = handles.open()
    store.sessions.open(dm("anna"))
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {"talk.db": 0o600, "talk.db-wal": 0o600, "talk.db-shm": 0o600}
    handles.close()
    assert [path.name for path in tmp_path.iterdir()] == ["talk.db"]


def test_wal_file_shrinks_after_a_long_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_open, "_WAL_BYTES", 2**20)
    wal = tmp_path / "talk.db-wal"
    with tertulia.open(tmp_path / "talk.db", settings=SETTINGS) as store:
        store._indexer.stop()
        session = store.sessions.open(dm("anna"))
        reader = apsw.Connection(str(tmp_path / "talk.db"))
        reader.execute("begin; select count(*) from messages").fetchall()
        messages = [user_message("x" * 4000) for _ in range(100)]
        while wal.stat().st_size < 20 * 2**20:
            store.transcript(session.id).extend(messages)
        reader.close()
        for _ in range(3):
            store.transcript(session.id).append(user_message("short"))
        assert wal.stat().st_size <= 2**20
