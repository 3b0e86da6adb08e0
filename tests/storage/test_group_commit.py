"""Writers lead in turn: who is committed together, who fails alone, what an interrupt leaves."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

import tertulia
from tertulia import Settings, Store, StoreError, StoreFull
from tertulia.storage.base import Transaction
from tertulia.storage.sqlite.database import SqliteDatabase
from tests.storage.children import Child
from tests.storage.inside import sqlite_of

Work = Callable[[Transaction], Any]


class Refused(Exception):
    pass


def put(name: str) -> Work:
    """Work that leaves a note, and answers with its name."""

    def work(tx: Transaction) -> str:
        tx.run("installation_set", {"name": name, "value": 1})
        return name

    return work


def refuse(name: str) -> Work:
    def work(tx: Transaction) -> None:
        put(name)(tx)
        raise Refused(name)

    return work


def break_a_rule(name: str) -> Work:
    """Work that the database refuses."""

    def work(tx: Transaction) -> None:
        put(name)(tx)
        tx.run("installation_set", {"name": "nothing", "value": None})

    return work


class Group:
    """Jobs that are sure to be in one batch: all come while the first is at work."""

    def __init__(self, database: SqliteDatabase) -> None:
        self.database = database
        self.commits: list[int] = []
        self.outcomes: dict[int, Any] = {}
        database._writer.set_commit_hook(self._committed)

    def _committed(self) -> bool:
        self.commits.append(threading.get_ident())
        return False

    def run(self, first: Work, *others: Work) -> list[Any]:
        """The results of all, or what they raised, in order."""
        is_inside, all_are_there = threading.Event(), threading.Event()

        def lead(tx: Transaction) -> Any:
            is_inside.set()
            all_are_there.wait()
            return first(tx)

        threads = [threading.Thread(target=self._write, args=(0, lead))]
        threads[0].start()
        is_inside.wait()
        for number, work in enumerate(others, 1):
            threads.append(threading.Thread(target=self._write, args=(number, work)))
            threads[-1].start()
            while len(self.database._waiting) < number:
                time.sleep(0.001)
        all_are_there.set()
        for thread in threads:
            thread.join()
        return [self.outcomes[number] for number in range(len(threads))]

    def _write(self, number: int, work: Work) -> None:
        try:
            self.outcomes[number] = self.database.write(work)
        except BaseException as problem:  # noqa: BLE001 — the test looks at it
            self.outcomes[number] = problem


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with tertulia.open(tmp_path / "talk.db", settings=Settings(zone="UTC")) as store:
        yield store


@pytest.fixture
def group(store: Store) -> Group:
    return Group(sqlite_of(store))


def stored(store: Store, *names: str) -> list[bool]:
    def work(tx: Transaction) -> list[bool]:
        return [tx.one("installation_get", {"name": name}) is not None for name in names]

    return store.context.db.read(work)


def test_a_lone_caller_commits_inline(store: Store, group: Group) -> None:
    before = threading.enumerate()
    workers: list[int] = []

    def work(tx: Transaction) -> None:
        workers.append(threading.get_ident())
        put("alone")(tx)

    store.context.db.write(work)
    here = threading.get_ident()
    assert (workers, group.commits) == ([here], [here])
    assert set(threading.enumerate()) <= set(before)  # those of earlier tests may end meanwhile


def test_who_comes_meanwhile_is_committed_together(store: Store, group: Group) -> None:
    names = [f"note{number}" for number in range(12)]
    assert group.run(*map(put, names)) == names
    assert len(group.commits) == 1
    assert all(stored(store, *names))


def test_one_that_fails_takes_no_other_with_it(store: Store, group: Group) -> None:
    outcomes = group.run(
        put("a"), refuse("b"), put("c"), break_a_rule("d"), put("e"), refuse("f"), put("g")
    )
    assert [type(one) for one in outcomes] == [str, Refused, str, StoreError, str, Refused, str]
    assert str(outcomes[1]) == "b"
    assert stored(store, *"abcdefg") == [True, False, True, False, True, False, True]
    assert len(group.commits) == 1


@pytest.mark.parametrize("fails", [refuse, break_a_rule])
def test_a_leader_that_fails_takes_no_other_with_it(
    store: Store, group: Group, fails: Callable[[str], Work]
) -> None:
    outcomes = group.run(fails("a"), put("b"), put("c"))
    assert isinstance(outcomes[0], Refused | StoreError)
    assert outcomes[1:] == ["b", "c"]
    assert stored(store, *"abc") == [False, True, True]


def test_a_commit_that_fails_is_told_to_everyone(store: Store, group: Group) -> None:
    tries: list[int] = []

    def refuse_the_first() -> bool:
        tries.append(1)
        return len(tries) == 1  # True turns the commit into a rollback

    sqlite_of(store)._writer.set_commit_hook(refuse_the_first)
    outcomes = group.run(put("a"), put("b"), refuse("c"), put("d"))
    assert [type(one) for one in outcomes] == [StoreError, StoreError, Refused, StoreError]
    assert all(one.hint for one in outcomes if isinstance(one, StoreError))
    assert stored(store, *"abcd") == [False] * 4
    assert store.context.db.write(put("next")) == "next"


def test_a_full_disk_is_told_to_everyone(store: Store, group: Group) -> None:
    """SQLite then rolls the whole transaction back, not only the statement."""

    def run_out(tx: Transaction) -> None:
        sqlite_of(store)._writer.execute("rollback")
        raise apsw.FullError("database or disk is full")

    outcomes = group.run(put("a"), put("b"), run_out, put("d"))
    assert [type(one) for one in outcomes[:3]] == [StoreFull] * 3
    # Whoever had not begun yet is not concerned.
    assert outcomes[3] == "d"
    assert stored(store, "a", "b", "d") == [False, False, True]
    assert store.context.db.write(put("next")) == "next"


def test_a_batch_ends_somewhere(store: Store, group: Group) -> None:
    """Many who come and come do not keep the first one waiting for ever."""
    names = [f"note{number}" for number in range(300)]
    assert group.run(*map(put, names)) == names
    assert len(group.commits) == 2


def test_results_go_to_whom_they_belong(store: Store) -> None:
    session = store.sessions.open(tertulia.Source("telegram", "anna"))
    transcript = store.transcript(session.id)
    mine: list[tuple[int, str]] = []

    def write(number: int) -> None:
        for count in range(40):
            text = f"{number} {count}"
            seq = transcript.append({"role": "user", "content": text})
            mine.append((seq, text))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    entries = {entry.seq: entry.body["content"] for entry in transcript.entries()}
    assert [(seq, text) for seq, text in mine if entries[seq] != text] == []
    assert len(entries) == len(mine) == 480


# -- interrupts; each in a process of its own, for they hit the main thread


def test_a_waiter_that_is_interrupted_leaves(tmp_path: Path) -> None:
    with Child("interrupt_a_waiter", str(tmp_path / "talk.db")) as child:
        assert child.said() == {"interrupted": True, "leader": True, "waiter": False}
        assert child.said() == {"next": True}


def test_a_leader_that_is_interrupted_harms_nobody(tmp_path: Path) -> None:
    """It gets the interrupt itself; whose work it was doing does not even notice."""
    with Child("interrupt_a_leader", str(tmp_path / "talk.db")) as child:
        told = child.said()
    assert told == {
        "interrupted": True,
        "outcome": ["done"],
        "runs": ["MainThread", "follower"],
        "leader": False,
        "follower": True,
    }


def test_the_lead_goes_to_nobody_who_has_left(tmp_path: Path) -> None:
    with Child("interrupt_both", str(tmp_path / "talk.db")) as child:
        assert child.said() == {"next": True}


def test_what_a_failed_commit_did_not_store_is_not_called_stored(tmp_path: Path) -> None:
    """Also where the leader is interrupted before it could tell the others."""
    with Child("interrupt_after_a_failed_commit", str(tmp_path / "talk.db")) as child:
        assert child.said() == {"outcome": [1], "leader": False, "follower": True}


@pytest.mark.parametrize(
    "seconds", [2, pytest.param(30, marks=pytest.mark.slow)], ids=["briefly", "long"]
)
@pytest.mark.parametrize("others", [0, 3], ids=["alone", "among others"])
def test_interrupts_at_any_moment(tmp_path: Path, others: int, seconds: float) -> None:
    """Neither the lead is lost, nor a transaction left open, nor anybody else disturbed."""
    path = tmp_path / "talk.db"
    enough = 50
    with Child("be_interrupted", str(path), seconds, others, enough) as child:
        told = child.said()
    assert told["problems"] == []
    assert told["interrupts"] > enough
    acknowledged = json.loads(Path(f"{path}.acknowledged").read_text())
    with tertulia.open(path, settings=Settings(zone="UTC")) as store:
        found = Counter(m["content"] for m in store.transcript(told["session"]).load())
        assert store.check() == []
    assert set(found.values()) == {1}
    assert not set(acknowledged) - set(found)
    # What was not acknowledged is the main thread's, who was interrupted.
    assert all(text.startswith("main") for text in set(found) - set(acknowledged))


def test_a_store_is_not_closed_from_within(tmp_path: Path) -> None:
    """A signal handler that closes it in the middle of a call is told so, and does not hang."""
    with Child("close_in_a_handler", str(tmp_path / "talk.db")) as child:
        assert child.said() == {"told": ["IllegalMove", "IllegalMove"], "inside": False}
