"""The index follows behind the turns by itself, and is never the reason that something fails.

SQLite only: what the index holds and when its disk fails is looked at from inside.
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
from tests.storage.disk import Disk, Step, fail
from tests.storage.inside import sqlite_of

ANNA = Source("telegram", "anna")


def opened(path: Path) -> Store:
    return tertulia.open(path, settings=Settings(zone="UTC", durability="fast"))


def said(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def indexed(store: Store, word: str) -> int:
    """How many messages the index has with a word, without bringing it up to date."""

    def count(connection: Any) -> int:
        query = "select count(*) from words where words match ?"
        return int(connection.execute(query, (f'"{word}"',)).fetchall()[0][0])

    return sqlite_of(store).alone(count)


def eventually(is_so: Callable[[], bool]) -> None:
    """Wait until it is so; a test that waits for ever is stopped by whoever runs it."""
    while not is_so():
        time.sleep(0.01)


def test_messages_are_indexed_behind_the_turns(tmp_path: Path) -> None:
    before = threading.enumerate()
    with opened(tmp_path / "talk.db") as store:
        session = store.sessions.open(ANNA)
        # It begins with the first message. Threads of earlier tests may end meanwhile.
        assert set(threading.enumerate()) <= set(before)
        store.transcript(session.id).extend(said(f"lighthouse {n}") for n in range(250))
        eventually(lambda: indexed(store, "lighthouse") == 250)


def test_who_opens_next_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "talk.db"
    with opened(path) as store:
        session = store.sessions.open(ANNA)
        store._indexer.stop()  # as one that ends before it came to them
        store.transcript(session.id).extend(said(f"lighthouse {n}") for n in range(50))
    with opened(path) as store:
        assert indexed(store, "lighthouse") == 0
        store.transcript(session.id).append(said("beacon"))
        eventually(lambda: indexed(store, "beacon") == 1)
        assert indexed(store, "lighthouse") == 50


def test_a_failure_is_told_once_and_mended_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, logger="tertulia.search")

    def break_index(step: Step) -> None:
        if step.kind == "write" and threading.current_thread().name == "tertulia-index":
            fail(step)

    with Disk() as disk, opened(tmp_path / "talk.db") as store:
        session = store.sessions.open(ANNA)
        disk.before = break_index
        transcript = store.transcript(session.id)
        transcript.append(said("lighthouse"))
        eventually(lambda: bool(caplog.records))
        # A worker that tried again at once would fill the log meanwhile.
        time.sleep(0.3)
        assert len(caplog.records) == 1
        assert [m["content"] for m in transcript.load()] == ["lighthouse"]
        disk.before = lambda step: None
        transcript.append(said("beacon"))
        eventually(lambda: indexed(store, "beacon") == 1)
        assert indexed(store, "lighthouse") == 1


def test_a_store_that_nobody_has_any_more_leaves_no_thread(tmp_path: Path) -> None:
    before = threading.enumerate()

    def use_and_forget() -> threading.Thread:
        store = opened(tmp_path / "talk.db")
        session = store.sessions.open(ANNA)
        store.transcript(session.id).append(said("lighthouse"))
        (thread,) = set(threading.enumerate()) - set(before)
        eventually(lambda: indexed(store, "lighthouse") == 1)
        return thread

    thread = use_and_forget()
    gc.collect()
    thread.join(30)
    assert not thread.is_alive()
