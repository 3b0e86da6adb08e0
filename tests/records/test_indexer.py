"""The search index is updated in the background, and its failure makes no other call fail.

SQLite only: the tests read the index tables and make the disk fail.
"""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tertulia
from tertulia import Settings, Source, Store
from tertulia.records import indexer
from tests.storage.store_internals import sqlite_of
from tests.storage.watched_disk import Disk, Step, fail

ANNA = Source("telegram", "anna")


def open_store(path: Path) -> Store:
    return tertulia.open(path, settings=Settings(zone="UTC", durability="fast"))


def user_message(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def count_indexed(store: Store, word: str) -> int:
    """Return how many messages the index has with a word, without updating it."""

    def count(connection: Any) -> int:
        query = "select count(*) from words where words match ?"
        return int(connection.execute(query, (f'"{word}"',)).fetchall()[0][0])

    return sqlite_of(store).run_on_own_connection(count)


def wait_until(is_true: Callable[[], bool]) -> None:
    """Wait until a condition is true, without a time limit of its own."""
    while not is_true():
        time.sleep(0.01)


def test_messages_are_indexed_in_the_background(tmp_path: Path) -> None:
    before = threading.enumerate()
    with open_store(tmp_path / "talk.db") as store:
        session = store.sessions.open(ANNA)
        # The thread begins with the first message. Threads of earlier tests may end meanwhile.
        assert set(threading.enumerate()) <= set(before)
        store.transcript(session.id).extend(user_message(f"lighthouse {n}") for n in range(250))
        wait_until(lambda: count_indexed(store, "lighthouse") == 250)


def test_next_process_continues_the_index(tmp_path: Path) -> None:
    path = tmp_path / "talk.db"
    with open_store(path) as store:
        session = store.sessions.open(ANNA)
        store._indexer.stop()  # as in a process that ends before it has indexed them
        store.transcript(session.id).extend(user_message(f"lighthouse {n}") for n in range(50))
    with open_store(path) as store:
        assert count_indexed(store, "lighthouse") == 0
        store.transcript(session.id).append(user_message("beacon"))
        wait_until(lambda: count_indexed(store, "beacon") == 1)
        assert count_indexed(store, "lighthouse") == 50


def test_failure_is_logged_once_and_repaired_by_the_next_write(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, logger="tertulia.search")

    def break_index(step: Step) -> None:
        if step.kind == "write" and threading.current_thread().name == "tertulia-index":
            fail(step)

    with Disk() as disk, open_store(tmp_path / "talk.db") as store:
        session = store.sessions.open(ANNA)
        disk.before = break_index
        transcript = store.transcript(session.id)
        transcript.append(user_message("lighthouse"))
        wait_until(lambda: bool(caplog.records))
        # A thread that retried at once would log many more in this time.
        time.sleep(0.3)
        assert len(caplog.records) == 1
        assert [m["content"] for m in transcript.load()] == ["lighthouse"]
        disk.before = lambda step: None
        transcript.append(user_message("beacon"))
        wait_until(lambda: count_indexed(store, "beacon") == 1)
        assert count_indexed(store, "lighthouse") == 1


def test_unreferenced_store_leaves_no_thread(tmp_path: Path) -> None:
    before = threading.enumerate()

    def use_and_drop() -> threading.Thread:
        store = open_store(tmp_path / "talk.db")
        session = store.sessions.open(ANNA)
        store.transcript(session.id).append(user_message("lighthouse"))
        (thread,) = set(threading.enumerate()) - set(before)
        wait_until(lambda: count_indexed(store, "lighthouse") == 1)
        return thread

    thread = use_and_drop()
    gc.collect()
    thread.join(30)
    assert not thread.is_alive()


def test_stop_ends_the_pause_between_two_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pause grows with the time of a step; closing a store must not wait for it."""
    monkeypatch.setattr(indexer, "_SLEEP_FACTOR", 1e9)
    has_stepped = threading.Event()

    class SlowSearch:
        def catch_up(self, *, steps: int) -> bool:
            time.sleep(0.001)
            has_stepped.set()
            return False  # there is more to do

    thread = indexer.Indexer(SlowSearch())  # type: ignore[arg-type]
    thread.notify()
    has_stepped.wait()
    stopping = threading.Thread(target=thread.stop, daemon=True)
    stopping.start()
    stopping.join(60)
    assert not stopping.is_alive()
