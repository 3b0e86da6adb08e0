"""Calls that share a commit: one that fails is undone alone, and the others run again unchanged."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tertulia
from tertulia import Settings, Store, StoreUnavailable
from tertulia.storage.base import Transaction
from tertulia.storage.sqlite.transaction import BoundStatements, RecordedTransaction
from tertulia.testing.fixtures import dm
from tests.storage.sqlite.test_group_commit import (
    Refused,
    Work,
    put,
    refuse,
    refuse_at_once,
    stored,
    violate_constraint,
)
from tests.storage.store_internals import sqlite_of


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with tertulia.open(tmp_path / "talk.db", settings=Settings(zone="UTC")) as store:
        yield store


def run_in_one_commit(store: Store, *works: Work) -> list[Any]:
    """Return the results or exceptions of calls that share a commit."""
    database = sqlite_of(store)
    outcomes: list[Any] = []

    def calls() -> None:
        for work in works:
            try:
                outcomes.append(database.write(work))
            except Exception as problem:  # noqa: BLE001 — the test looks at it
                outcomes.append(problem)

    database.in_one_commit(calls)
    return outcomes


@given(st.lists(st.sampled_from([put, refuse, refuse_at_once, violate_constraint]), max_size=12))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_calls_of_one_commit_end_as_they_would_alone(
    store: Store, kinds: list[Callable[[str], Work]]
) -> None:
    names = [f"{time.monotonic_ns()}-{number}" for number in range(len(kinds))]
    works = map(lambda kind, name: kind(name), kinds, names)
    outcomes = run_in_one_commit(store, *works)
    is_put = [kind is put for kind in kinds]
    assert [outcome == name for outcome, name in zip(outcomes, names, strict=True)] == is_put
    assert stored(store, *names) == is_put


def test_what_calls_were_told_is_what_is_stored_after_another_one_failed(store: Store) -> None:
    """Ids, numbers and leases too: the turns below go on with them after the commit."""
    entered: list[tertulia.Turn] = []
    sources = [dm(name) for name in ("anna", "ben", "cleo")]
    with store.turn(sources[0], text="earlier", message_id="0") as turn:
        turn.add_assistant("yes")

    def calls() -> None:
        for number, source in enumerate(sources):
            turn = store.turn(source, text=f"hello {number}", message_id="1")
            entered.append(turn.__enter__())
            with pytest.raises(Refused):
                sqlite_of(store).write(refuse(f"refused {number}"))

    store.in_one_commit(calls)
    for number, turn in enumerate(entered):
        turn.add_assistant("hi")
        turn.__exit__(None, None, None)
        contents = [message["content"] for message in store.transcript(turn.session.id).load()]
        assert contents == (["earlier", "yes"] if number == 0 else []) + [f"hello {number}", "hi"]
    assert not any(stored(store, *(f"refused {number}" for number in range(3))))
    assert store.context.db.check() == []


def test_lease_is_the_one_that_its_turn_was_told(store: Store, tmp_path: Path) -> None:
    source = dm("anna")
    with store.turn(source, text="earlier", message_id="0") as turn:
        turn.add_assistant("yes")
    leases: list[int] = []

    def calls() -> None:
        turn = store.turn_control(source, "hello", message_id="1", media=(), wait=0)
        turn.__enter__()
        assert turn._entry is not None
        leases.append(turn._entry.row.lease_until)
        entered_at = time.time()
        while time.time() < entered_at + 0.002:  # until the clock shows another millisecond
            time.sleep(0.001)
        with pytest.raises(Refused):
            sqlite_of(store).write(refuse("refused"))

    store.in_one_commit(calls)
    with closing(sqlite3.connect(tmp_path / "talk.db")) as connection:
        assert connection.execute("select lease_until from sessions").fetchall() == [(leases[0],)]


def test_no_statement_runs_a_third_time(store: Store) -> None:
    runs: Counter[Any] = Counter()
    database = sqlite_of(store)

    def count(cursor: apsw.Cursor, sql: str, values: Any) -> bool:
        runs[sql, values] += 1
        return True

    database._writer.set_exec_trace(count)
    names = [f"name {number}" for number in range(20)]
    run_in_one_commit(store, *(kind(name) for name in names for kind in (put, refuse)))
    assert all(stored(store, *names))
    of_puts = [count for (_, values), count in runs.items() if isinstance(values, tuple) and values]
    # Each name is put once by a call that stays and once by a call that fails.
    assert sorted(of_puts) == [3] * len(names)


def test_savepoint_is_set_once_for_calls_that_succeed(store: Store) -> None:
    statements: list[str] = []
    sqlite_of(store)._writer.set_profile(lambda sql, nanoseconds: statements.append(sql))
    run_in_one_commit(store, *(put(f"name {number}") for number in range(10)))
    assert len([sql for sql in statements if sql.startswith("savepoint")]) == 1


def test_nothing_is_stored_if_a_statement_has_another_result_the_second_time(
    store: Store,
) -> None:
    database = sqlite_of(store)
    database._group._shared_tx._statements["put_random"] = (
        "insert into installation (name, value) values (?1, abs(random())) returning value",
        lambda params: (params["name"],),
    )

    def put_random(tx: Transaction) -> Any:
        return tx.one("put_random", {"name": "random"})

    with pytest.raises(StoreUnavailable):
        run_in_one_commit(store, put("before"), put_random, refuse("refused"), put("after"))
    assert not any(stored(store, "before", "random", "refused", "after"))
    assert run_in_one_commit(store, put("later")) == ["later"]


def test_nothing_is_stored_if_a_statement_fails_the_second_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: RecordedTransaction) -> None:
        raise apsw.IOError("the disk is gone")

    outcomes: list[Any] = []

    def call(work: Work) -> None:
        try:
            outcomes.append(sqlite_of(store).write(work))
        except tertulia.Error as problem:  # never one of SQLite's own
            outcomes.append(type(problem))

    def calls() -> None:
        for work in (put("a"), refuse("b"), put("c")):
            call(work)

    monkeypatch.setattr(RecordedTransaction, "run_again", fail)
    with pytest.raises(StoreUnavailable):
        store.in_one_commit(calls)
    assert outcomes == ["a", StoreUnavailable, StoreUnavailable]
    assert not any(stored(store, "a", "b", "c"))


def test_rows_of_many_run_again(store: Store) -> None:
    def put_many(tx: Transaction) -> None:
        tx.many("installation_set", ({"name": name, "value": 1} for name in ("a", "b", "c")))

    run_in_one_commit(store, put_many, refuse("refused"))
    assert stored(store, "a", "b", "c", "refused") == [True, True, True, False]


def test_full_disk_fails_every_call_of_the_commit(store: Store) -> None:
    database = sqlite_of(store)
    pages = database._writer.pragma("page_count")
    database._writer.execute(f"pragma max_page_count = {pages}")

    def put_much(tx: Transaction) -> None:
        tx.run("installation_set", {"name": "much", "value": "x" * 1_000_000})

    with pytest.raises(StoreUnavailable):  # SQLite itself has rolled everything back
        run_in_one_commit(store, put("a"), put_much, put("b"))
    assert not any(stored(store, "a", "much", "b"))
    assert run_in_one_commit(store, put("later")) == ["later"]


@pytest.mark.parametrize(
    ("sql", "values"),
    [
        ("select :a", (1,)),
        ("select :a, :b, :a", (1, 2)),
        ("select :db_now", ("now",)),
        ("select :db_now, :a", (1, "now")),
        ("select :a where :db_now < :b", (1, 2, "now")),
    ],
)
def test_values_are_in_the_order_of_their_numbers(
    sql: str, values: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 5_000_999)
    text, values_of = BoundStatements({"it": sql})["it"]
    expected = tuple(5_000 if value == "now" else value for value in values)
    assert values_of({"a": 1, "b": 2, "unused": 3}) == expected
    with closing(apsw.Connection(":memory:")) as connection:
        connection.execute(text, expected)  # refuses another number of values
