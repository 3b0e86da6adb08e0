"""Foreign databases are read from a copy, in use or not a database at all."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from tertulia import Store
from tertulia.transfer import import_from
from tests.transfer.foreign_folders import planted, print_of
from tests.transfer.importers.source_files import kinds


def test_database_in_use_is_read(store: Store, tmp_path: Path) -> None:
    home = planted("hermes019_moved_home", tmp_path)
    live = sqlite3.connect(home / "state.db", isolation_level=None)
    live.execute("pragma journal_mode = wal")
    live.execute("pragma wal_autocheckpoint = 0")
    (session_id,) = live.execute("select id from sessions limit 1").fetchone()
    live.execute(
        "insert into messages (session_id, role, content, timestamp) values (?, 'user', 'live', 1)",
        (session_id,),
    )
    live.execute("begin immediate")  # and it is about to write more
    live.execute("update messages set content = 'not yet' where content = 'live'")
    before = print_of(home)
    report = import_from(store, "hermes", home)
    assert print_of(home) == before
    live.execute("rollback")
    live.close()
    assert report.messages == 89
    assert store.transcript(session_id).load()[-1]["content"] == "live"


@pytest.mark.parametrize("what", ["folder", "fifo", "link", "nothing", "text", "empty"])
def test_file_that_is_no_database_is_reported(store: Store, tmp_path: Path, what: str) -> None:
    home = planted("dmg_hermes001_crlf", tmp_path)
    path = home / "state.db"
    match what:
        case "folder":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case "link":
            path.symlink_to(tmp_path / "talk.db")
        case "text":
            path.write_text("not a database at all, but long enough to look at its head" * 20)
        case "empty":
            path.write_bytes(b"")
    wanted = {
        "folder": {"not_a_file"}, "fifo": {"not_a_file"}, "link": {"symlink"},
        "text": {"database_damaged"},
    }  # fmt: skip
    report = import_from(store, "hermes", home)
    assert (report.sessions, report.messages) == (5, 57)
    assert kinds(report) == wanted.get(what, set())
