"""Statements of several threads in one transaction: each has its own outcome."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia import Source, Store, StoreError
from tertulia.storage.postgres import shared_transactions as module
from tertulia.storage.postgres.database import PostgresDatabase
from tertulia.storage.postgres.shared_transactions import SharedTransactions, Statement
from tertulia.storage.statements import Query
from tertulia.testing.fixtures import texts, wait_until
from tests.records.store_inspection import PATIENCE
from tests.storage.postgres.server_stores import as_owner, in_threads, opened

QUERY = Query(b"select $1")
MOST = 16
ENDS_AT_ONCE = 0  # a statement that the runner does not hold back


class Runner:
    """Runs batches when it is told to, and remembers them."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.threads: list[int] = []
        self.may_run = threading.Semaphore(0)
        self.problem: BaseException | None = None

    def __call__(self, batch: Sequence[Statement]) -> None:
        self.batches.append([statement.values[0] for statement in batch])
        self.threads.append(threading.get_ident())
        if self.batches[-1] != [ENDS_AT_ONCE]:
            assert self.may_run.acquire(timeout=PATIENCE)
        for statement in batch:
            statement.rows = [(statement.values[0],)]
        if self.problem is not None:
            raise self.problem


class Callers:
    """Threads that submit a number each, one after the other, and their outcomes."""

    def __init__(self, group: SharedTransactions, runner: Runner) -> None:
        self.group = group
        self.runner = runner
        self.outcomes: dict[int, Any] = {}
        self._threads: list[threading.Thread] = []

    def start(self, *numbers: int) -> None:
        for number in numbers:
            before = self._progress()
            thread = threading.Thread(target=self._submit, args=(number,), daemon=True)
            self._threads.append(thread)
            thread.start()
            while self._progress() == before:
                time.sleep(0.001)

    def _progress(self) -> tuple[int, int]:
        return len(self.runner.batches), len(self.group._waiting)

    def end_one(self) -> None:
        """Let one batch end, and wait until the one after it has begun."""
        batches = len(self.runner.batches)
        self.runner.may_run.release()
        wait_until(lambda: len(self.runner.batches) > batches, "another batch begins")

    def finish(self) -> dict[int, Any]:
        """Let every batch end; return the outcomes."""
        self.runner.may_run.release(len(self._threads))
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive(), "a caller waits in vain"
        return self.outcomes

    def _submit(self, number: int) -> None:
        try:
            self.outcomes[number] = self.group.submit(Statement(QUERY, [number]))
        except BaseException as problem:  # noqa: BLE001 — the test looks at it
            self.outcomes[number] = problem


@pytest.fixture
def runner() -> Runner:
    return Runner()


@pytest.fixture
def group(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> SharedTransactions:
    monkeypatch.setattr(module, "_WAIT_SECONDS", PATIENCE)
    group = SharedTransactions(runner, MOST)
    group._limit = 2
    return group


@pytest.fixture
def callers(group: SharedTransactions, runner: Runner) -> Callers:
    return Callers(group, runner)


class TestSharedTransactions:
    def test_statement_runs_alone_in_its_thread_if_few_run(
        self, callers: Callers, runner: Runner
    ) -> None:
        callers.start(1, 2)
        assert runner.batches == [[1], [2]]
        assert len({*runner.threads}) == 2
        assert callers.finish() == {1: [(1,)], 2: [(2,)]}

    def test_those_that_wait_run_together_in_order(self, callers: Callers, runner: Runner) -> None:
        callers.start(1, 2, 3, 4, 5, 6)
        assert runner.batches == [[1], [2]]
        callers.end_one()
        assert runner.batches == [[1], [2], [3, 4, 5, 6]]
        assert callers.finish() == {number: [(number,)] for number in range(1, 7)}

    def test_batch_size_is_limited(
        self, callers: Callers, runner: Runner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "_BATCH_LIMIT", 2)
        callers.start(1, 2, 3, 4, 5)
        callers.end_one()
        callers.end_one()
        assert runner.batches == [[1], [2], [3, 4], [5]]
        callers.finish()

    def test_nobody_is_left_when_all_have_their_outcome(
        self, group: SharedTransactions, callers: Callers
    ) -> None:
        callers.start(1, 2, 3)
        callers.finish()
        assert (group._running, len(group._waiting)) == (0, 0)

    def test_main_thread_waits_for_nobody_and_takes_nobody_along(
        self, group: SharedTransactions, callers: Callers, runner: Runner
    ) -> None:
        """An interrupt may end its call at any moment."""
        assert threading.current_thread() is threading.main_thread()
        callers.start(1, 2, 3)
        assert group.submit(Statement(QUERY, [ENDS_AT_ONCE])) == [(ENDS_AT_ONCE,)]
        assert runner.batches == [[1], [2], [ENDS_AT_ONCE]]
        callers.finish()

    def test_failure_of_a_leader_wakes_the_others(
        self, group: SharedTransactions, callers: Callers, runner: Runner
    ) -> None:
        runner.problem = MemoryError()
        callers.start(1, 2, 3, 4)
        callers.end_one()
        outcomes = callers.finish()
        assert outcomes[4] == [(4,)]  # as `run` has set it
        assert {type(outcomes[number]) for number in (1, 2, 3)} == {MemoryError}
        assert group._running == 0

    def test_statement_that_nobody_takes_runs_alone(
        self, callers: Callers, runner: Runner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Those that run may hang, or wait for a lock."""
        monkeypatch.setattr(module, "_WAIT_SECONDS", 0.02)
        callers.start(1, 2, 3, 4)
        wait_until(lambda: len(runner.batches) == 4, "the others run too")
        assert sorted(runner.batches) == [[1], [2], [3], [4]]
        assert callers.finish() == {number: [(number,)] for number in range(1, 5)}

    @pytest.mark.parametrize("place", ["_lead", "_wait"])
    def test_exception_anywhere_leaves_nobody_waiting(
        self,
        group: SharedTransactions,
        callers: Callers,
        monkeypatch: pytest.MonkeyPatch,
        place: str,
    ) -> None:
        def fail(*args: object) -> None:
            raise RecursionError

        callers.start(1, 2)
        with monkeypatch.context() as patch:
            if place == "_lead":
                group._limit = 3
            patch.setattr(group, place, fail)
            problems: list[BaseException] = []
            try:
                in_threads(1, lambda number: group.submit(Statement(QUERY, [3])))
            except RecursionError as problem:
                problems.append(problem)
            assert len(problems) == 1
        callers.start(4)
        assert callers.finish()[4] == [(4,)]
        assert (group._running, len(group._waiting)) == (0, 0)

    def test_each_of_many_runs_once_and_has_its_own_outcome(self) -> None:
        ran: list[int] = []

        def run(batch: Sequence[Statement]) -> None:
            for statement in batch:
                ran.append(statement.values[0])
                statement.rows = [(statement.values[0],)]

        group = SharedTransactions(run, 3)

        def submit(caller: int) -> None:
            for number in range(caller * 1000, caller * 1000 + 200):
                assert group.submit(Statement(QUERY, [number])) == [(number,)]

        in_threads(12, submit)
        assert len(ran) == len({*ran}) == 12 * 200
        assert (group._running, len(group._waiting)) == (0, 0)


class TestLimit:
    """How many transactions run at once, by how long the fastest took for each statement."""

    @pytest.mark.parametrize(
        ("seconds", "limit"), [(0.0001, 2), (0.0005, 2), (0.0006, 3), (0.002, 8), (math.inf, MOST)]
    )
    def test_more_run_where_they_wait_for_the_network(
        self, group: SharedTransactions, seconds: float, limit: int
    ) -> None:
        for _ in range(2 * module._WINDOW):
            group._note_time(seconds)
        assert group._limit == limit

    def test_one_fast_transaction_tells_that_the_others_waited_for_a_processor(
        self, group: SharedTransactions
    ) -> None:
        for number in range(4 * module._WINDOW):
            group._note_time(0.0002 if number % module._WINDOW == 7 else 0.01)
        assert group._limit == 2

    def test_before_the_first_window_nobody_waits(self, runner: Runner) -> None:
        assert SharedTransactions(runner, MOST)._limit == MOST

    @given(st.lists(st.floats(0, 10), min_size=64, max_size=300))
    def test_it_stays_within_its_bounds(self, times: list[float]) -> None:
        group = SharedTransactions(Runner(), MOST)
        for seconds in times:
            group._note_time(seconds)
            assert 2 <= group._limit <= MOST


# -- on a server

PEOPLE = [Source("telegram", f"p{number}", user_id=f"p{number}") for number in range(8)]


class Together:
    """Lets all people write at once, in one transaction."""

    def __init__(self, store: Store) -> None:
        self.store = store
        db = store.context.db
        assert isinstance(db, PostgresDatabase)
        self._group = db._shared
        self._run = db._shared._run
        self.batches: list[int] = []

    def write(self, meanwhile: Callable[[], None] = lambda: None) -> dict[int, Any]:
        """Return what each was answered, or the exception that was raised."""
        is_held = threading.Event()
        outcomes: dict[int, Any] = {}

        def run(batch: Sequence[Statement]) -> None:
            self.batches.append(len(batch))
            if not is_held.is_set():
                is_held.set()
                wait_until(lambda: len(self._group._waiting) == len(PEOPLE) - 1, "all others wait")
            self._run(batch)

        def write(number: int) -> None:
            try:
                with self.store.turn(PEOPLE[number], "and now?", message_id="now") as turn:
                    turn.add_assistant(f"now, {number}")
                outcomes[number] = turn.answer
            except StoreError as problem:
                outcomes[number] = problem

        self._group._run = run
        self._group._limit = 1
        in_threads(len(PEOPLE), write, meanwhile)
        return outcomes


@pytest.fixture
def store(address: str) -> Iterator[Store]:
    with opened(address, busy_seconds=30) as store:
        for person in PEOPLE:
            with store.turn(person, "hello", message_id="first") as turn:
                turn.add_assistant("hi")
        yield store


@pytest.fixture
def together(store: Store, monkeypatch: pytest.MonkeyPatch) -> Together:
    monkeypatch.setattr(module, "_WAIT_SECONDS", PATIENCE)  # nobody goes alone
    return Together(store)


def history(store: Store, person: Source) -> list[str]:
    (session,) = store.sessions.find(person=f"telegram:{person.user_id}").items
    return texts(store.transcript(session.id))


def assert_each_was_answered_once(store: Store, numbers: Sequence[int]) -> None:
    for number in numbers:
        assert history(store, PEOPLE[number]) == ["hello", "hi", "and now?", f"now, {number}"]
    assert store.check() == []


ANSWERS = {number: f"now, {number}" for number in range(len(PEOPLE))}


class TestOnServer:
    def test_turns_that_enter_at_once_share_a_transaction(
        self, address: str, store: Store, together: Together
    ) -> None:
        assert together.write() == ANSWERS
        # The answer of the first may be among them.
        assert together.batches[1] >= len(PEOPLE) - 1
        with as_owner(address) as connection:
            rows = connection.execute(
                "select count(*) from messages where role = 'user' group by xmin::text order by 1"
            ).fetchall()
        assert rows[-1] == (len(PEOPLE) - 1,)
        assert_each_was_answered_once(store, range(len(PEOPLE)))

    def test_failing_statement_fails_alone(
        self, address: str, store: Store, together: Together
    ) -> None:
        with as_owner(address) as connection:
            connection.execute(
                """create function refuse() returns trigger language plpgsql as $$
                begin raise exception 'not this one'; end $$;
                create trigger refuse before insert on turns for each row
                when (new.arrival like '%p5%') execute function refuse();"""
            )
        outcomes = together.write()
        assert isinstance(outcomes.pop(5), StoreError)
        assert outcomes == {number: text for number, text in ANSWERS.items() if number != 5}
        assert_each_was_answered_once(store, sorted(outcomes))
        assert history(store, PEOPLE[5]) == ["hello", "hi"]

    def test_lost_connection_loses_and_doubles_nothing(
        self, address: str, store: Store, together: Together
    ) -> None:
        with as_owner(address) as connection:
            connection.execute(
                # A sequence is not rolled back: this happens once.
                """create sequence times;
                create function die() returns trigger language plpgsql as $$
                begin
                    if nextval('times') = 3 then
                        perform pg_terminate_backend(pg_backend_pid());
                    end if;
                    return new;
                end $$;
                create trigger die before insert on messages for each row execute function die();"""
            )
        assert together.write() == ANSWERS
        assert_each_was_answered_once(store, range(len(PEOPLE)))

    def test_locked_session_does_not_hold_up_the_others(
        self, address: str, store: Store, together: Together
    ) -> None:
        """Another transaction, which has stopped, has locked the row of one session."""
        others = [person for person in PEOPLE if person is not PEOPLE[3]]
        with psycopg.connect(address) as connection:
            connection.execute("select 1 from sessions where key like '%p3' for update")

            def look() -> None:
                wait_until(
                    lambda: all(len(history(store, person)) == 4 for person in others),
                    "the others are answered",
                )
                assert history(store, PEOPLE[3]) == ["hello", "hi"]
                connection.rollback()

            assert together.write(look) == ANSWERS
        assert_each_was_answered_once(store, range(len(PEOPLE)))

    def test_hanging_connections_do_not_stop_the_others(self, store: Store) -> None:
        """Of two turns the connection hangs; the others have more than enough connections."""
        db = store.context.db
        assert isinstance(db, PostgresDatabase)
        run, may_go_on = db._shared._run, threading.Event()
        answered: list[int] = []

        def hang_for_two(group: Sequence[Statement]) -> None:
            if any("p0" in str(item.values) or "p1" in str(item.values) for item in group):
                may_go_on.wait(PATIENCE)
            run(group)

        def write(number: int) -> None:
            if number > 1:
                wait_until(lambda: db._shared._running == 2, "two turns hang")
            with store.turn(PEOPLE[number], "and now?", message_id="now") as turn:
                turn.add_assistant(f"now, {number}")
            answered.append(number)

        def look() -> None:
            try:
                wait_until(lambda: sorted(answered) == [2, 3, 4, 5, 6, 7], "the others go on")
            finally:
                may_go_on.set()

        db._shared._run = hang_for_two
        db._shared._limit = 2
        in_threads(len(PEOPLE), write, look)
        assert_each_was_answered_once(store, range(len(PEOPLE)))

    def test_value_that_cannot_be_sent_is_refused_alone(self, store: Store) -> None:
        db = store.context.db
        assert isinstance(db, PostgresDatabase)
        query = Query(b"select $1::text")
        group = [Statement(query, [text]) for text in ("one", "\ud800", "three")]
        db._run_together(group)
        assert [statement.outcome() for statement in group] == [[("one",)], None, [("three",)]]
