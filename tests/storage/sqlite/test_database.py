"""Content of the SQLite file, and the handle of a process on it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest

import tertulia
from tertulia import Store
from tertulia.testing import Handles
from tertulia.testing.fixtures import assistant_message, dm
from tests.storage.child_process import ChildProcess
from tests.storage.sqlite.store_files import opened, said
from tests.storage.store_internals import sqlite_of


class TestFile:
    """The tables and constraints in the file."""

    def test_large_text_is_stored_once(self, handles: Handles) -> None:
        store = handles.open()
        large = "a very large text " * 10_000
        sessions = [store.sessions.open(dm(name)) for name in ("anna", "ben")]
        for session in sessions:
            store.transcript(session.id).extend([said(large), assistant_message(large)])
        store.transcript(sessions[0].id).append({"role": "tool", "a": large, "b": [large, "x"]})
        assert rows(store, "select count(*), sum(size) from blobs") == [(1, len(large))]
        store.sessions.delete(sessions[0].id)
        assert rows(store, "select count(*) from blobs") == [(1,)]
        store.sessions.delete(sessions[1].id)
        assert rows(store, "select count(*) from blobs") == [(0,)]
        handles.close()

    @pytest.mark.parametrize(
        "doubles",
        [
            "update sessions set ended_at = null",
            "update sessions set title = 'Trip'",
            "update sessions set id = 'the same'",
        ],
    )
    def test_uniqueness_is_enforced_by_constraints(self, handles: Handles, doubles: str) -> None:
        """Not by the care of the code that writes, nor by a separate index."""
        store = handles.open()
        store.sessions.open(dm("anna"))
        store.sessions.open(dm("anna"), force_new=True)
        with pytest.raises(tertulia.StoreError):
            rows(store, doubles)
        assert len(store.sessions.find(state="current").items) == 1
        handles.close()

    def test_deleted_session_leaves_no_row(self, handles: Handles) -> None:
        store = handles.open()
        empty = row_counts(store)
        first = store.sessions.open(dm("anna"))
        store.transcript(first.id).extend([said("lighthouse"), said("x" * 100_000)])
        fork = store.sessions.fork(first.id)
        store.transcript(fork.id).append(said("beacon"))
        store.sessions.rename(fork.id, "Harbour")
        store.settle()
        for session in (first, fork):
            store.sessions.delete(session.id)
        after = row_counts(store)
        assert after.pop("people") == 1  # the person stays until it is deleted too
        assert empty.pop("people") == 0
        assert after == empty
        handles.close()


def rows(store: Store, query: str) -> list[tuple[object, ...]]:
    return sqlite_of(store).run_on_own_connection(
        lambda connection: connection.execute(query).fetchall()
    )


def row_counts(store: Store) -> dict[str, int]:
    """Return how many rows each table has; of a search index, how many entries."""
    names = [name for (name,) in rows(store, "select name from sqlite_schema where type = 'table'")]
    tables = [name for name in names if not str(name).startswith(("words_", "cards_"))]
    counts = {str(name): rows(store, f"select count(*) from {name}")[0][0] for name in tables}
    return {name: int(str(count)) for name, count in counts.items()}


class TestProcess:
    """Fork and exit of a process with an open store."""

    @pytest.mark.check
    def test_forked_process_cannot_use_the_parents_store(self, tmp_path: Path) -> None:
        path = tmp_path / "talk.db"
        with ChildProcess("fork_and_go_on", str(path)) as child:
            hints = child.read()
            assert len(hints) == 3
            assert all("new process" in hint for hint in hints)
            report = child.read()
        assert report == {"code": 0, "texts": ["before", "in the child", "after"]}
        with opened(path) as store:
            assert store.check() == []

    @pytest.mark.check
    def test_process_that_exits_without_closing_leaves_a_sound_store(self, tmp_path: Path) -> None:
        """Background threads end with the process, and the store is sound."""
        for number in range(5):
            path = tmp_path / f"{number}.db"
            with ChildProcess("exit_without_closing", str(path), 400) as child:
                session_id = child.read()
            with opened(path) as store:
                assert store.transcript(session_id).count() == 400
                assert store.check() == []


class TestFileInUse:
    """The file stays the one that was opened, or a call fails and says so."""

    def test_working_directory_may_change(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        monkeypatch.chdir(tmp_path)
        with tertulia.open("talk.db") as store:
            session = store.sessions.open(dm("anna"))
            monkeypatch.chdir(elsewhere)
            database = sqlite_of(store)
            seen = database.read(lambda _: store.sessions.get(session.id))  # in another connection
            assert seen is not None
            assert store.vacuum()[1] > 0
        assert list(elsewhere.iterdir()) == []

    @pytest.mark.parametrize("is_replaced", [True, False], ids=["replaced", "deleted"])
    def test_nothing_is_acknowledged_that_the_file_will_not_have(
        self, tmp_path: Path, is_replaced: bool
    ) -> None:
        path, aside = tmp_path / "talk.db", tmp_path / "aside.db"
        with tertulia.open(path) as store:
            session = store.sessions.open(dm("anna"))
            transcript = store.transcript(session.id)
            transcript.append(said("one"))
            store.backup(tmp_path / "copy.db")
            path.rename(aside)
            if is_replaced:
                (tmp_path / "copy.db").rename(path)
            with pytest.raises(tertulia.StoreUnavailable, match="replaced, moved or deleted"):
                transcript.append(said("two"))
            with pytest.raises(tertulia.StoreUnavailable, match="replaced, moved or deleted"):
                sqlite_of(store).read(lambda _: store.sessions.find())  # in another connection
            assert path.exists() == is_replaced
            aside.rename(path)
            transcript.append(said("three"))
            assert [message["content"] for message in transcript.load()] == ["one", "three"]

    def test_a_folder_that_is_moved_takes_no_message_along(self, tmp_path: Path) -> None:
        folder = tmp_path / "data"
        folder.mkdir()
        with tertulia.open(folder / "talk.db") as store:
            transcript = store.transcript(store.sessions.open(dm("anna")).id)
            folder.rename(tmp_path / "aside")
            with pytest.raises(tertulia.StoreUnavailable, match="replaced, moved or deleted"):
                transcript.append(said("one"))
            (tmp_path / "aside").rename(folder)
            transcript.append(said("two"))
            assert [message["content"] for message in transcript.load()] == ["two"]

    def test_a_link_that_names_another_file_takes_no_message_along(self, tmp_path: Path) -> None:
        path, link = tmp_path / "talk.db", tmp_path / "current.db"
        link.symlink_to(path)
        with tertulia.open(link) as store:
            transcript = store.transcript(store.sessions.open(dm("anna")).id)
            store.backup(tmp_path / "copy.db")
            link.unlink()
            link.symlink_to(tmp_path / "copy.db")
            with pytest.raises(tertulia.StoreUnavailable, match="replaced, moved or deleted"):
                transcript.append(said("one"))
            link.unlink()
            link.symlink_to(path)
            transcript.append(said("two"))
            assert [message["content"] for message in transcript.load()] == ["two"]


class TestStatements:
    """What a connection does for the statements that it runs."""

    def test_claim_stays_prepared_while_many_other_calls_run(self, handles: Handles) -> None:
        """To prepare the statements of a claim takes longer than to run them."""
        store = handles.open()
        writer = sqlite_of(store)._writer
        store.inbox.claim()
        put_messages(store, 20)
        store.inbox.claim(1)
        prepared = writer.cache_stats()["misses"]
        put_messages(store, 70, first=20)
        store.inbox.claim(1)
        assert writer.cache_stats()["misses"] == prepared

    def test_claim_stays_prepared_while_many_calls_share_commits(self, handles: Handles) -> None:
        store = handles.open()
        writer = sqlite_of(store)._writer
        store.inbox.claim()
        claim = max((entry["query"] for entry in prepared_statements(writer)), key=len)
        assert "inbox" in claim
        for first in range(0, 1000, 100):
            store.in_one_commit(partial(put_messages, store, 100, first=first))
        assert claim in [entry["query"] for entry in prepared_statements(writer)]

    def test_accepted_messages_that_share_a_commit_need_no_savepoint(
        self, handles: Handles
    ) -> None:
        store = handles.open()
        statements: list[str] = []
        writer = sqlite_of(store)._writer
        writer.set_profile(lambda sql, nanoseconds: statements.append(sql))
        store.in_one_commit(lambda: put_messages(store, 3))
        assert statements.count("commit") == 1
        assert not [sql for sql in statements if sql.startswith("savepoint")]
        assert store.inbox.count("waiting") == 3

    def test_failed_statement_changes_nothing_beside_others_in_the_same_commit(
        self, handles: Handles
    ) -> None:
        store = handles.open()
        rows(
            store,
            "create trigger refuse before insert on inbox when new.key like '%ben%'"
            " begin select raise(abort, 'refused'); end",
        )
        errors: list[tertulia.Error] = []

        def put_both() -> None:
            store.inbox.put(dm("anna"), "hello", message_id="1")
            try:
                store.inbox.put(dm("ben"), "hello", message_id="1")
            except tertulia.Error as problem:
                errors.append(problem)

        store.in_one_commit(put_both)
        assert len(errors) == 1
        assert [item.source.chat_id for item in store.inbox.find().items] == [dm("anna").chat_id]


def prepared_statements(connection: apsw.Connection) -> list[dict[str, Any]]:
    """Return the statements that apsw keeps."""
    stats: dict[str, Any] = {**connection.cache_stats(include_entries=True)}
    return list(stats["entries"])


def put_messages(store: Store, count: int, *, first: int = 0) -> None:
    for number in range(first, first + count):
        store.inbox.put(dm(f"person{number}"), "hello", message_id="1")
