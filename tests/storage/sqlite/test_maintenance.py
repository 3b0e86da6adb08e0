"""Check, backup and vacuum of a SQLite file."""

from __future__ import annotations

import itertools
import os
import sys
import threading
from pathlib import Path

import apsw
import pytest

import tertulia
from tertulia.storage.sqlite import maintenance
from tertulia.storage.sqlite.database import SqliteDatabase
from tertulia.testing import Handles
from tertulia.testing.fixtures import assistant_message, dm, user_message
from tests.storage.sqlite.store_files import SETTINGS


def test_backup_is_a_store(handles: Handles, tmp_path: Path) -> None:
    store = handles.open()
    session = store.sessions.open(dm("anna"))
    store.transcript(session.id).extend(user_message(f"{n}") for n in range(2000))
    steps: list[tuple[int, int]] = []
    store.backup(tmp_path / "copy.db", progress=lambda done, of: steps.append((done, of)))
    store.transcript(session.id).append(user_message("later"))
    assert steps[-1][0] == steps[-1][1]
    with tertulia.open(tmp_path / "copy.db", settings=SETTINGS) as copy:
        assert copy.check() == []
        assert copy.transcript(session.id).count() == 2000
    before = (tmp_path / "copy.db").read_bytes()
    with pytest.raises(tertulia.ConfigError):
        store.backup(tmp_path / "copy.db")
    assert (tmp_path / "copy.db").read_bytes() == before
    handles.close()


def test_backup_beside_a_writer_copies_one_snapshot(
    handles: Handles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn is stored after every step, and another thread answers turns all the time."""
    monkeypatch.setattr(maintenance, "_PAGES_PER_STEP", 20)
    store = handles.open()
    session = store.sessions.open(dm("anna"))
    store.transcript(session.id).extend(user_message("x" * 2000) for n in range(500))
    is_over = threading.Event()

    def answer(person: str) -> None:
        with store.turn(dm(person), text="hello") as turn:
            turn.add_assistant("hi")

    def answer_all_the_time() -> None:
        while not is_over.is_set():
            answer("ben")

    steps: list[int] = []

    def progress(done: int, total: int) -> None:
        answer("carl")
        steps.append(done)
        assert steps == sorted(set(steps)), "it began anew"

    writer = threading.Thread(target=answer_all_the_time)
    writer.start()
    try:
        store.backup(tmp_path / "copy.db", progress=progress)
    finally:
        is_over.set()
        writer.join()
    assert len(steps) > 10
    with tertulia.open(tmp_path / "copy.db", settings=SETTINGS) as copy:
        assert copy.check() == []
        assert copy.transcript(session.id).count() == 500
        assert copy.sessions.current(copy.sessions.key(dm("carl"))) is None
    handles.close()


def test_check_finds_no_damage_beside_a_writer(
    handles: Handles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So much is indexed between any two statements that parts of the index are merged."""
    store = handles.open()
    transcript = store.transcript(store.sessions.open(dm("anna")).id)

    class Beside:
        """A connection that somebody writes beside."""

        def __init__(self, connection: apsw.Connection) -> None:
            self._connection = connection

        def execute(self, statement: str) -> apsw.Cursor:
            for _ in range(60):
                transcript.append(user_message(f"word{next(numbers)}"))
                store.settle()
            return self._connection.execute(statement)

    numbers = itertools.count()
    run = SqliteDatabase.run_on_own_connection
    monkeypatch.setattr(
        SqliteDatabase,
        "run_on_own_connection",
        lambda db, work: run(db, lambda connection: work(Beside(connection))),
    )
    assert store.check() == []
    handles.close()


def test_vacuum_gives_space_back(handles: Handles, tmp_path: Path) -> None:
    store = handles.open()
    session = store.sessions.open(dm("anna"))
    store.transcript(session.id).extend(user_message("x" * 1000) for n in range(2000))
    store.sessions.delete(session.id)
    before, after = store.vacuum()
    assert after < before / 4
    assert (tmp_path / "talk.db").stat().st_size == after
    assert store.check() == []
    handles.close()


@pytest.mark.parametrize(
    ("harm", "fault"),
    [
        ("update sessions set revision = 99", "points at a revision that does not exist"),
        ("delete from messages where place & 4294967295 = 2", "missing from the middle"),
        (
            "delete from messages where place & 4294967295 = 3",
            "newest message of a session is missing",
        ),
        ("update sessions set last_seq = 1", "is beyond the end"),
        ("update messages set place = place + (9 << 32)", "belongs to no session"),
        ("delete from blobs", "a part of a message is missing"),
        ("insert into words (rowid, text) values (1, 'ghost')", None),
        ("drop index sessions_current; insert into sessions select * from ghost", "current"),
        ("delete from words_data where id > 10", "the search index is damaged"),
        ("delete from cards_content", "the search index is damaged"),
        ("update cards_data set block = zeroblob(3)", "the search index is damaged"),
    ],
)
def test_check_finds_each_kind_of_damage(
    handles: Handles, tmp_path: Path, harm: str, fault: str | None
) -> None:
    store = handles.open()
    session = store.sessions.open(dm("anna", chat_name="The Circle"))
    store.transcript(session.id).extend(
        [user_message("a"), assistant_message("b"), user_message("c " * 50_000)]
    )
    store.settle()
    assert store.check() == []
    handles.close()
    connection = apsw.Connection(str(tmp_path / "talk.db"))
    connection.execute(
        "create temp table ghost as select * from sessions;"
        " update ghost set ref = 77, id = 'ghost', last_seq = 0, indexed_seq = 0;"
        " insert into revisions (session, number, ranges, made_by, start_seq, at)"
        " values (77, 1, '[]', 'start', 0, 0)"
    )
    connection.execute(harm)
    connection.close()
    store = handles.open()
    faults = store.check()
    assert any(fault in line for line in faults) if fault else faults == []
    if fault and "search index" in fault:
        assert ["--rebuild-search" in line for line in faults] == [True]
        store.rebuild_search()
        assert store.check() == []
        assert [hit.seq for hit in store.search("b").items] == [2]
        assert len(store.sessions.find(text="circle").items) == 1
    handles.close()


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_failed_backup_leaves_no_file_open(handles: Handles, tmp_path: Path) -> None:
    store = handles.open()
    store.sessions.open(dm("anna"))

    def fail(done: int, total: int) -> None:
        raise RuntimeError("the disk of the caller is full")

    with pytest.raises(RuntimeError) as failure:
        store.backup(tmp_path / "copy.db", progress=fail)
    links = (f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd"))
    opened = [os.path.realpath(link) for link in links]
    # The error is kept, and with it every object of the calls that it came through.
    assert failure.tb is not None
    assert not [path for path in opened if "copy.db" in path]
    assert not list(tmp_path.glob("copy.db*"))
