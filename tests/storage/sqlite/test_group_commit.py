"""Group commit: jobs of one batch, jobs that fail alone, and the state after an interrupt."""

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
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tertulia
from tertulia import Settings, Store, StoreError, StoreFull
from tertulia.storage.base import Transaction
from tertulia.storage.sqlite.database import SqliteDatabase
from tests.storage.child_process import ChildProcess
from tests.storage.store_internals import sqlite_of

Work = Callable[[Transaction], Any]


class Refused(Exception):
    pass


def put(name: str) -> Work:
    """Return work that inserts a row and returns its name."""

    def work(tx: Transaction) -> str:
        tx.run("installation_set", {"name": name, "value": 1})
        return name

    return work


def refuse(name: str) -> Work:
    def work(tx: Transaction) -> None:
        put(name)(tx)
        raise Refused(name)

    return work


def violate_constraint(name: str) -> Work:
    """Return work that violates a constraint."""

    def work(tx: Transaction) -> None:
        put(name)(tx)
        tx.run("installation_set", {"name": "nothing", "value": None})

    return work


class Group:
    """Jobs that are certain to be in one batch: all are queued while the first one runs."""

    def __init__(self, database: SqliteDatabase) -> None:
        self.database = database
        self.commits: list[int] = []
        self.outcomes: dict[int, Any] = {}
        database._writer.set_commit_hook(self._committed)

    def _committed(self) -> bool:
        self.commits.append(threading.get_ident())
        return False

    def run(self, first: Work, *others: Work) -> list[Any]:
        """Return the results or exceptions of all jobs, in order."""
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
            while len(self.database._group.waiting) < number:
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


def test_lone_caller_commits_inline(store: Store, group: Group) -> None:
    before = threading.enumerate()
    workers: list[int] = []

    def work(tx: Transaction) -> None:
        workers.append(threading.get_ident())
        put("alone")(tx)

    store.context.db.write(work)
    here = threading.get_ident()
    assert (workers, group.commits) == ([here], [here])
    assert set(threading.enumerate()) <= set(before)  # those of earlier tests may end meanwhile


def test_concurrent_writes_share_one_commit(store: Store, group: Group) -> None:
    names = [f"note{number}" for number in range(12)]
    assert group.run(*map(put, names)) == names
    assert len(group.commits) == 1
    assert all(stored(store, *names))


def test_failing_follower_fails_alone(store: Store, group: Group) -> None:
    outcomes = group.run(
        put("a"), refuse("b"), put("c"), violate_constraint("d"), put("e"), refuse("f"), put("g")
    )
    assert [type(outcome) for outcome in outcomes] == [
        str,
        Refused,
        str,
        StoreError,
        str,
        Refused,
        str,
    ]
    assert str(outcomes[1]) == "b"
    assert stored(store, *"abcdefg") == [True, False, True, False, True, False, True]
    assert len(group.commits) == 1


def refuse_at_once(name: str) -> Work:
    """Return work that fails before it has changed anything."""

    def work(tx: Transaction) -> None:
        tx.one("installation_get", {"name": name})
        raise Refused(name)

    return work


def counted(work: Work, runs: Counter[str], name: str) -> Work:
    def run(tx: Transaction) -> Any:
        runs[name] += 1
        return work(tx)

    return run


def test_follower_that_changed_nothing_costs_the_others_nothing(group: Group) -> None:
    runs: Counter[str] = Counter()
    jobs = {"a": put, "b": refuse_at_once, "c": put}
    outcomes = group.run(*(counted(job(name), runs, name) for name, job in jobs.items()))
    assert [type(outcome) for outcome in outcomes] == [str, Refused, str]
    assert runs == Counter("abc")


def test_follower_that_changed_something_makes_other_followers_run_again(group: Group) -> None:
    runs: Counter[str] = Counter()
    jobs = {"a": put, "b": put, "c": refuse, "d": put, "e": refuse}
    outcomes = group.run(*(counted(job(name), runs, name) for name, job in jobs.items()))
    assert [type(outcome) for outcome in outcomes] == [str, str, Refused, str, Refused]
    assert runs == {"a": 1, "b": 2, "c": 2, "d": 1, "e": 1}


def test_follower_that_fails_does_not_let_go_of_the_file(store: Store, group: Group) -> None:
    """Another process could take it, and everybody of the batch would have to wait for it."""
    rollbacks: list[int] = []
    sqlite_of(store)._writer.set_rollback_hook(lambda: rollbacks.append(1))
    outcomes = group.run(put("a"), put("b"), refuse("c"), violate_constraint("d"), put("e"))
    assert [type(outcome) for outcome in outcomes] == [str, str, Refused, StoreError, str]
    assert rollbacks == []


def test_calls_that_share_a_commit_run_once_if_a_follower_fails(store: Store) -> None:
    database = sqlite_of(store)
    runs: list[str] = []
    outcomes: list[BaseException] = []

    def follow() -> None:
        try:
            database.write(refuse("follower"))
        except Refused as problem:
            outcomes.append(problem)

    follower = threading.Thread(target=follow)

    def calls() -> None:
        runs.append("calls")
        database.write(put("call"))
        follower.start()
        while not database._group.waiting:
            time.sleep(0.001)

    database.in_one_commit(calls)
    follower.join()
    assert (runs, len(outcomes)) == (["calls"], 1)
    assert stored(store, "call", "follower") == [True, False]


@given(st.lists(st.sampled_from([put, refuse, refuse_at_once, violate_constraint]), max_size=12))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_jobs_of_one_batch_end_as_they_would_alone(
    group: Group, store: Store, kinds: list[Callable[[str], Work]]
) -> None:
    names = [f"{time.monotonic_ns()}-{number}" for number in range(len(kinds) + 1)]
    outcomes = group.run(put(names[0]), *map(lambda kind, name: kind(name), kinds, names[1:]))
    is_put = [True, *(kind is put for kind in kinds)]
    assert [outcome == name for outcome, name in zip(outcomes, names, strict=True)] == is_put
    assert stored(store, *names) == is_put


@pytest.mark.parametrize("fails", [refuse, violate_constraint])
def test_failing_leader_fails_alone(
    store: Store, group: Group, fails: Callable[[str], Work]
) -> None:
    outcomes = group.run(fails("a"), put("b"), put("c"))
    assert isinstance(outcomes[0], Refused | StoreError)
    assert outcomes[1:] == ["b", "c"]
    assert stored(store, *"abc") == [False, True, True]


def test_failed_commit_raises_in_every_job(store: Store, group: Group) -> None:
    tries: list[int] = []

    def refuse_the_first() -> bool:
        tries.append(1)
        return len(tries) == 1  # True turns the commit into a rollback

    sqlite_of(store)._writer.set_commit_hook(refuse_the_first)
    outcomes = group.run(put("a"), put("b"), refuse("c"), put("d"))
    assert [type(outcome) for outcome in outcomes] == [StoreError, StoreError, Refused, StoreError]
    assert all(outcome.hint for outcome in outcomes if isinstance(outcome, StoreError))
    assert stored(store, *"abcd") == [False] * 4
    assert store.context.db.write(put("next")) == "next"


def test_full_disk_raises_in_every_job_of_the_batch(store: Store, group: Group) -> None:
    """SQLite then rolls the whole transaction back, not only the statement."""

    def run_out(tx: Transaction) -> None:
        sqlite_of(store)._writer.execute("rollback")
        raise apsw.FullError("database or disk is full")

    outcomes = group.run(put("a"), put("b"), run_out, put("d"))
    assert [type(outcome) for outcome in outcomes[:3]] == [StoreFull] * 3
    # The job that had not begun yet runs in the next transaction.
    assert outcomes[3] == "d"
    assert stored(store, "a", "b", "d") == [False, False, True]
    assert store.context.db.write(put("next")) == "next"


def test_batch_size_is_limited(store: Store, group: Group) -> None:
    """A steady flow of jobs does not keep the first caller waiting for ever."""
    names = [f"note{number}" for number in range(300)]
    assert group.run(*map(put, names)) == names
    assert len(group.commits) == 2


def test_each_caller_gets_its_own_result(store: Store) -> None:
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


# -- interrupts; each in a process of its own, because they hit the main thread


def test_interrupted_follower_leaves_the_queue(tmp_path: Path) -> None:
    with ChildProcess("interrupt_follower", str(tmp_path / "talk.db")) as child:
        assert child.read() == {"interrupted": True, "leader": True, "waiter": False}
        assert child.read() == {"next": True}


def test_interrupted_leader_does_not_affect_followers(tmp_path: Path) -> None:
    """The leader gets the interrupt; the follower whose work it ran gets its result."""
    with ChildProcess("interrupt_leader", str(tmp_path / "talk.db")) as child:
        report = child.read()
    assert report == {
        "interrupted": True,
        "outcome": ["done"],
        "runs": ["MainThread", "follower"],
        "leader": False,
        "follower": True,
    }


def test_lead_is_not_passed_to_an_interrupted_follower(tmp_path: Path) -> None:
    with ChildProcess("interrupt_both", str(tmp_path / "talk.db")) as child:
        assert child.read() == {"next": True}


def test_interrupt_after_failed_commit_runs_followers_again(tmp_path: Path) -> None:
    """The leader is interrupted before it could report the failure to the others."""
    with ChildProcess("interrupt_after_failed_commit", str(tmp_path / "talk.db")) as child:
        assert child.read() == {"outcome": [1], "leader": False, "follower": True}


@pytest.mark.check
@pytest.mark.parametrize(
    "seconds", [2, pytest.param(30, marks=pytest.mark.slow)], ids=["briefly", "long"]
)
@pytest.mark.parametrize("others", [0, 3], ids=["alone", "among others"])
def test_interrupts_at_any_moment_lose_nothing(tmp_path: Path, others: int, seconds: float) -> None:
    """The lead is not lost, no transaction stays open, and no other thread is affected."""
    path = tmp_path / "talk.db"
    enough = 50
    with ChildProcess("write_under_interrupts", str(path), seconds, others, enough) as child:
        report = child.read()
    assert report["problems"] == []
    assert report["interrupts"] > enough
    acknowledged = json.loads(Path(f"{path}.acknowledged").read_text())
    with tertulia.open(path, settings=Settings(zone="UTC")) as store:
        stored_texts = Counter(m["content"] for m in store.transcript(report["session"]).load())
        assert store.check() == []
    assert set(stored_texts.values()) == {1}
    assert not set(acknowledged) - set(stored_texts)
    # Unacknowledged texts are those of the main thread, which was interrupted.
    assert all(text.startswith("main") for text in set(stored_texts) - set(acknowledged))


def test_closing_from_a_signal_handler_inside_a_call_is_refused(tmp_path: Path) -> None:
    """A signal handler that closes the store inside a call gets an error and does not hang."""
    with ChildProcess("close_in_signal_handler", str(tmp_path / "talk.db")) as child:
        assert child.read() == {"errors": ["IllegalMove", "IllegalMove"], "inside": False}
