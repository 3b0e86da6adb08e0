"""SQLite keeps every promise of a store, with either durability."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import apsw
import pytest

import tertulia
from tertulia import Settings, Store
from tertulia.testing import FakeClock, Handles, StoreContract
from tertulia.testing.fixtures import (
    answered,
    dm,
    said,
)
from tests.storage.inside import sqlite_of


class _OnSqlite(StoreContract):
    def connect(self, place: Path, settings: Settings, clock: FakeClock) -> Store:
        return tertulia.open(place / "talk.db", settings=settings, clock=clock)


class TestSafe(_OnSqlite):
    settings = Settings(zone="UTC", durability="safe")

    def test_it_is_safe(self, store: Store) -> None:
        assert synchronous(store) == 2  # FULL: every commit is on the disk when it returns


class TestFast(_OnSqlite):
    settings = Settings(zone="UTC", durability="fast")

    def test_it_is_fast(self, store: Store) -> None:
        assert synchronous(store) == 1  # NORMAL: only a checkpoint waits for the disk


class TestSqlite:
    """What only SQLite promises: how it lies in the file."""

    settings: ClassVar[Settings] = Settings(zone="UTC", durability="fast")

    @pytest.fixture
    def stage(self, tmp_path: Path) -> Handles:
        return Handles(tmp_path, _OnSqlite().connect, self.settings)

    def test_a_large_text_is_kept_once(self, stage: Handles) -> None:
        store = stage.open()
        large = "a very large text " * 10_000
        sessions = [store.sessions.open(dm(name)) for name in ("anna", "ben")]
        for session in sessions:
            store.transcript(session.id).extend([said(large), answered(large)])
        store.transcript(sessions[0].id).append({"role": "tool", "a": large, "b": [large, "x"]})
        assert rows(store, "select count(*), sum(size) from blobs") == [(1, len(large))]
        store.sessions.delete(sessions[0].id)
        assert rows(store, "select count(*) from blobs") == [(1,)]
        store.sessions.delete(sessions[1].id)
        assert rows(store, "select count(*) from blobs") == [(0,)]
        stage.close()

    @pytest.mark.parametrize(
        "doubles",
        [
            "update sessions set ended_at = null",
            "update sessions set title = 'Trip'",
            "update sessions set id = 'the same'",
        ],
    )
    def test_what_is_unique_is_so_by_constraint(self, stage: Handles, doubles: str) -> None:
        """Not by the care of whoever writes, nor by an index that is kept beside."""
        store = stage.open()
        store.sessions.open(dm("anna"))
        store.sessions.open(dm("anna"), force_new=True)
        with pytest.raises(tertulia.StoreError):
            rows(store, doubles)
        assert len(store.sessions.find(state="current").items) == 1
        stage.close()

    def test_a_deleted_session_leaves_no_row(self, stage: Handles) -> None:
        store = stage.open()
        empty = shape(store)
        first = store.sessions.open(dm("anna"))
        store.transcript(first.id).extend([said("lighthouse"), said("x" * 100_000)])
        fork = store.sessions.fork(first.id)
        store.transcript(fork.id).append(said("beacon"))
        store.sessions.rename(fork.id, "Harbour")
        store.settle()
        for session in (first, fork):
            store.sessions.delete(session.id)
        after = shape(store)
        assert after.pop("people") == 1  # who wrote is known until that is deleted too
        assert empty.pop("people") == 0
        assert after == empty
        stage.close()

    def test_a_file_is_its_owners_alone(self, stage: Handles) -> None:
        store = stage.open()
        store.sessions.open(dm("anna"))
        modes = {path.name: path.stat().st_mode & 0o777 for path in stage.place.iterdir()}
        assert modes == {"talk.db": 0o600, "talk.db-wal": 0o600, "talk.db-shm": 0o600}
        stage.close()
        assert [path.name for path in stage.place.iterdir()] == ["talk.db"]

    def test_a_backup_is_a_store(self, stage: Handles, tmp_path: Path) -> None:
        store = stage.open()
        session = store.sessions.open(dm("anna"))
        store.transcript(session.id).extend(said(f"{n}") for n in range(2000))
        steps: list[tuple[int, int]] = []
        store.backup(tmp_path / "copy.db", progress=lambda done, of: steps.append((done, of)))
        store.transcript(session.id).append(said("later"))
        assert steps[-1][0] == steps[-1][1]
        with tertulia.open(tmp_path / "copy.db", settings=self.settings) as copy:
            assert copy.check() == []
            assert copy.transcript(session.id).count() == 2000
        before = (tmp_path / "copy.db").read_bytes()
        with pytest.raises(tertulia.ConfigError):
            store.backup(tmp_path / "copy.db")
        assert (tmp_path / "copy.db").read_bytes() == before
        stage.close()

    def test_vacuum_gives_space_back(self, stage: Handles) -> None:
        store = stage.open()
        session = store.sessions.open(dm("anna"))
        store.transcript(session.id).extend(said("x" * 1000) for n in range(2000))
        store.sessions.delete(session.id)
        before, after = store.vacuum()
        assert after < before / 4
        assert (stage.place / "talk.db").stat().st_size == after
        assert store.check() == []
        stage.close()

    @pytest.mark.parametrize(
        ("harm", "fault"),
        [
            ("update sessions set revision = 99", "points at a revision that does not exist"),
            ("delete from messages where seq = 2", "missing from the middle"),
            ("delete from messages where seq = 3", "newest message of a session is missing"),
            ("update sessions set last_seq = 1", "lies above the end"),
            ("update messages set place = place + (9 << 32)", "belongs to no session"),
            ("delete from blobs", "a part of a message is missing"),
            ("insert into words (rowid, text) values (1, 'ghost')", None),
            ("drop index sessions_current; insert into sessions select * from ghost", "current"),
            ("delete from words_data where id > 10", "the search index is damaged"),
            ("delete from cards_content", "the search index is damaged"),
            ("update cards_data set block = zeroblob(3)", "the search index is damaged"),
        ],
    )
    def test_check_finds_what_is_wrong(self, stage: Handles, harm: str, fault: str | None) -> None:
        store = stage.open()
        session = store.sessions.open(dm("anna", chat_name="The Circle"))
        store.transcript(session.id).extend([said("a"), answered("b"), said("c " * 50_000)])
        store.settle()
        assert store.check() == []
        stage.close()
        connection = apsw.Connection(str(stage.place / "talk.db"))
        connection.execute(
            "create temp table ghost as select * from sessions;"
            " update ghost set ref = 77, id = 'ghost', last_seq = 0, indexed_seq = 0;"
            " insert into revisions (session, number, ranges, made_by, start_seq, at)"
            " values (77, 1, '[]', 'start', 0, 0)"
        )
        connection.execute(harm)
        connection.close()
        store = stage.open()
        faults = store.check()
        assert any(fault in one for one in faults) if fault else faults == []
        if fault and "search index" in fault:
            assert ["--rebuild-search" in one for one in faults] == [True]
            store.rebuild_search()
            assert store.check() == []
            assert [hit.seq for hit in store.search("b").items] == [2]
            assert len(store.sessions.find(text="circle").items) == 1
        stage.close()


def synchronous(store: Store) -> int:
    """As the connection has it that commits."""
    return int(sqlite_of(store)._writer.pragma("synchronous"))


def rows(store: Store, query: str) -> list[tuple[object, ...]]:
    return sqlite_of(store).alone(lambda connection: connection.execute(query).fetchall())


def shape(store: Store) -> dict[str, int]:
    """How many rows each table has; of a search index, how many entries."""
    names = [name for (name,) in rows(store, "select name from sqlite_schema where type = 'table'")]
    kept = [name for name in names if not str(name).startswith(("words_", "cards_"))]
    counts = {str(name): rows(store, f"select count(*) from {name}")[0][0] for name in kept}
    return {name: int(str(count)) for name, count in counts.items()}


def test_no_promise_hides_another() -> None:
    """Two of the same name, in classes that are joined, would be one."""
    names = [
        name for part in StoreContract.__mro__ for name in vars(part) if name.startswith("test_")
    ]
    assert sorted(names) == sorted(set(names))
