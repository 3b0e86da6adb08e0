"""One turn at a time, in order of arrival, whoever races for it: processes and threads."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

import tertulia
from tertulia import Store
from tertulia.testing.fixtures import run_in_threads, wait_until
from tests.records.store_inspection import ANA, FAST, PATIENCE, execute, faults_of, log_of, tickets
from tests.records.turns.turn_processes import (
    Child,
    answer_the_same,
    enter_and_fork,
    one_of_many,
    race,
    take_many,
    take_one,
)

often = pytest.mark.parametrize(
    "times", [100, pytest.param(1000, marks=pytest.mark.slow)], ids=["100 times", "1000 times"]
)


def start_together(children: list[Child]) -> None:
    for child in children:
        assert child.hear() == "ready"
    for child in children:
        child.tell("go")


def wait_for_tickets(store: Store, count: int) -> None:
    wait_until(lambda: tickets(store) == count, "it has its ticket")


def exchanges(store: Store) -> list[str]:
    """The questions of the only session, each of which has its answer right behind it."""
    (session,) = store.sessions.find().items
    rows = log_of(store, session)
    questions, answers = rows[::2], rows[1::2]
    assert [row.role for row in questions] == ["user"] * len(questions)
    assert [row.content for row in answers] == [f"re {row.content}" for row in questions]
    assert [row.turn for row in questions] == list(range(1, len(questions) + 1))
    assert [row.turn for row in answers] == list(range(1, len(questions) + 1))
    assert faults_of(store.transcript(session.id).history()) == []
    assert store.check() == []
    return [str(row.content) for row in questions]


def check_order(entered: list[str], told: dict[str, list[tuple[int, int | None]]]) -> None:
    """Nobody is missing, and tickets were served in the order they were taken."""
    wanted = {f"{name} {number}": ticket for name, own in told.items() for number, ticket in own}
    assert len(entered) == len(wanted)
    assert {*entered} == {*wanted}
    served = [ticket for text in entered if (ticket := wanted[text]) is not None]
    assert served == sorted(served)


@pytest.mark.check
@often
def test_two_processes_race_for_one_session(where: str, tmp_path: Path, times: int) -> None:
    with ExitStack() as stack:
        store = stack.enter_context(tertulia.open(where, settings=FAST))
        children = {
            name: stack.enter_context(Child(race, where, tmp_path, name, times // 2))
            for name in ("A", "B")
        }
        # Neither may be through before the other has begun: both stand in the queue first.
        with store.turn(ANA, "first") as turn:
            start_together([*children.values()])
            wait_for_tickets(store, 2)
            turn.add_assistant("re first")
        told = {name: child.hear() for name, child in children.items()}
        assert [child.end() for child in children.values()] == [0, 0]
        first, *entered = exchanges(store)
        assert first == "first"
        check_order(entered, told)
        assert tickets(store) == 0
    assert all(own[0][1] is not None for own in told.values()), "there was no race"


@pytest.mark.parametrize("is_shared", [True, False], ids=["one handle", "a handle each"])
def test_threads_race_for_one_session(where: str, tmp_path: Path, is_shared: bool) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(tertulia.open(where, settings=FAST))
        handles = [
            first if is_shared else stack.enter_context(tertulia.open(where, settings=FAST))
            for _ in range(4)
        ]

        def work(name: str, store: Store) -> Callable[[], list[tuple[int, int | None]]]:
            return lambda: [one_of_many(store, tmp_path, f"{name} {count}") for count in range(20)]

        names = "ABCD"
        results = run_in_threads(*(work(*pair) for pair in zip(names, handles, strict=True)))
        told = dict(zip(names, results, strict=True))
        check_order(exchanges(first), told)
        assert tickets(first) == 0


def test_waiting_turns_enter_in_order_of_arrival(where: str) -> None:
    names = [f"number {place}" for place in range(5)]
    with ExitStack() as stack:
        store = stack.enter_context(tertulia.open(where, settings=FAST))
        children = [stack.enter_context(Child(take_one, where, name)) for name in names]
        with store.turn(ANA, "first") as turn:
            for place, child in enumerate(children):
                assert child.hear() == "ready"
                child.tell("go")
                wait_for_tickets(store, place + 1)
            turn.add_assistant("re first")
        assert [child.hear() for child in children] == ["done"] * 5
        assert exchanges(store) == ["first", *names]


def test_no_turn_overtakes_a_waiting_one(where: str) -> None:
    """Two processes that take turn after turn leave room for one that comes once."""
    with ExitStack() as stack:
        store = stack.enter_context(tertulia.open(where, settings=FAST))
        greedy = [stack.enter_context(Child(take_many, where, name)) for name in ("A", "B")]
        start_together(greedy)
        wait_until(
            lambda: execute(store, "select 1 from turns limit 1 offset 20"), "they are at it"
        )
        overtaken: list[int] = []

        def has_waited_often() -> bool:
            turn = store.turn_control(ANA, "may I?", wait=PATIENCE)
            if not turn.try_enter():
                ((begun,),) = execute(store, "select turns from sessions")
                with turn:
                    assert turn._turn is not None
                    overtaken.append(turn._turn.number - begun - 1)
            turn.leave()
            return len(overtaken) >= 10

        wait_until(has_waited_often, "it has to wait")
        # Each of them may have taken its ticket before.
        assert max(overtaken) <= len(greedy)
        for child in greedy:
            child.tell("stop")
            assert child.end() == 0


@pytest.mark.parametrize(
    "times", [20, pytest.param(200, marks=pytest.mark.slow)], ids=["20 times", "200 times"]
)
def test_one_message_delivered_five_times_at_once_has_one_turn(where: str, times: int) -> None:
    with ExitStack() as stack:
        store = stack.enter_context(tertulia.open(where, settings=FAST))
        copies = (2, 1, 1, 1)
        children = [stack.enter_context(Child(answer_the_same, where, count)) for count in copies]
        assert [child.hear() for child in children] == ["ready"] * 4
        answers = []
        for number in range(times):
            for child in children:
                child.tell(str(number))
            told = [outcome for child in children for outcome in child.hear()]
            assert [duplicate for _, duplicate in told].count(False) == 1
            assert len({answer for answer, _ in told}) == 1
            answers.append(told[0][0])
        for child in children:
            child.tell(None)
            assert child.end() == 0
        (session,) = store.sessions.find().items
        rows = log_of(store, session)
        assert [row.role for row in rows] == ["user", "assistant", "tool", "assistant"] * times
        assert [row.content for row in rows[3::4]] == answers
        assert tickets(store) == 0


def test_forked_process_does_not_wait_for_a_finished_turn(where: str) -> None:
    with Child(enter_and_fork, where) as child:
        assert child.hear() == 0
    with tertulia.open(where, settings=FAST) as store:
        (session,) = store.sessions.find().items
        assert [row.content for row in log_of(store, session)] == ["one", "1", "two", "2"]
