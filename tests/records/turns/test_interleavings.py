"""Every order in which the steps of two turns and of what disturbs them can fall.

A turn is a short list of transactions, and transactions are serial. So whatever threads, processes
and machines do, what happens to the store is one of these orders, and each is played here against
the real store: two turns (of handles that know nothing of each other), an expiry of the lease, a
renewal, an undo, a reset. After every step the laws have to hold.

Up to two disturbances every order is played on SQLite. Where there are thousands, and on
PostgreSQL, where an order costs ten times as much, a sample is, the same one in every run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import TypeVar

import pytest
from hypothesis import settings

from tertulia import LeaseLost, NotFound, Source, Store, Usage
from tertulia.records.turns.control import TurnControl
from tertulia.storage.postgres.database import PostgresDatabase
from tests.records.store_inspection import (
    Row,
    call,
    execute,
    faults_of,
    interrupted,
    let_lease_run_out,
    log_of,
    open_apart,
    unanswered,
)

T = TypeVar("T")

A, B = "A", "B"
EXPIRY, RENEWAL, UNDO, RESET = "expiry", "renewal", "undo", "reset"
EVENTS = (EXPIRY, RENEWAL, UNDO, RESET)

# How many orders of a case are played: all of them, if there are no more.
MANY = 1_000 if settings().max_examples >= 200 else 40
ON_POSTGRES = min(100, settings().max_examples // 5)

LONG = ("enter", "call", "result", "answer")
SHORT = ("enter", "answer")


def orders(first: int, second: int, events: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Every order of so many steps of A and of B, and of some events, each once."""
    if not (first or second or events):
        yield ()
    if first:
        yield from ((A, *rest) for rest in orders(first - 1, second, events))
    if second:
        yield from ((B, *rest) for rest in orders(first, second - 1, events))
    for place, event in enumerate(events):
        others = (*events[:place], *events[place + 1 :])
        yield from ((event, *rest) for rest in orders(first, second, others))


class Actor:
    """One turn, a step at a time. A turn that cannot enter yet tries again at its next step."""

    def __init__(
        self, name: str, store: Store, source: Source, steps: Sequence[str], message_id: str
    ) -> None:
        self.name = name
        self.question = f"question {message_id}"
        self.turn: TurnControl = store.turn_control(source, self.question, message_id=message_id)
        self.steps = list(steps)
        self.stored: list[str] = []  # what was acknowledged
        self.is_lost = False

    @property
    def place(self) -> tuple[str, int] | None:
        """The session and the epoch it writes under, while it is inside."""
        found = self.turn._turn
        return (found.session_id, found.epoch) if found and self.steps else None

    def step(self) -> None:
        if not self.steps:
            return
        name = self.steps[0]
        if name == "enter" and not self.turn.try_enter():
            return
        self.steps.pop(0)
        try:
            self._write(name)
        except LeaseLost:
            self.is_lost = True
            self.steps.clear()
        if not self.steps:
            self.turn.leave(failed=self.is_lost)

    def _write(self, name: str) -> None:
        stored = f"{name} {self.name}"
        if name == "enter":
            stored = self.question
            if self.turn.duplicate:
                self.steps.clear()
        elif name == "call":
            self.turn.add_assistant(None, tool_calls=[call(stored)])
        elif name == "result":
            self.turn.add_tool_result(f"call {self.name}", stored)
        else:
            self.turn.add_assistant(stored, usage=Usage(1))
        self.stored.append(stored)


class Play:
    """One order, in a conversation of its own. After each step the laws are looked at."""

    def __init__(
        self, handles: tuple[Store, Store], chat: str, steps: dict[str, Sequence[str]], ids: str
    ) -> None:
        self.store = handles[0]
        self.source = Source("telegram", chat, user_id=chat)
        self.key = self.store.sessions.key(self.source)
        self.actors = {
            name: Actor(name, handle, self.source, steps[name], message_id)
            for name, handle, message_id in zip((A, B), handles, ids, strict=True)
        }
        self.logs: dict[str, list[Row]] = {}
        self.epochs: dict[str, int] = {}

    def run(self, order: Sequence[str]) -> None:
        for step in order:
            self._do(step)
        # What is left of both, one after the other; where one is stuck, its lease runs out.
        for step in (*LONG, EXPIRY, *LONG):
            for name in (A, B):
                self._do(name if step in LONG else step)
        assert not any(actor.steps for actor in self.actors.values())
        self._check_the_end()

    def _do(self, step: str) -> None:
        if step in self.actors:
            self._step(self.actors[step])
        elif (session := self.store.sessions.current(self.key)) is not None:
            if step == EXPIRY:
                let_lease_run_out(self.store, session)
            elif step == RENEWAL:
                self.actors[A].turn.renew()
            elif step == UNDO:
                self.store.transcript(session.id).undo()
            else:
                self.store.sessions.reset(self.key)
            self._look()

    def _step(self, actor: Actor) -> None:
        """A step, which stores nothing once another has entered the same session."""
        place = actor.place
        if not actor.steps:
            return
        before = self.logs
        actor.step()
        self._look()
        if place is not None:
            is_replaced = self.epochs[place[0]] > place[1]
            assert actor.is_lost == is_replaced
            assert not is_replaced or self.logs == before

    def _look(self) -> None:
        rows = execute(self.store, "select id, epoch from sessions where key = ?", self.key)
        self.epochs = dict(rows)
        before, self.logs = self.logs, {name: log_of(self.store, name) for name in self.epochs}
        for name, log in self.logs.items():
            old = before.get(name, [])
            assert log[: len(old)] == old, "what was stored has changed"
            turns = [row.turn for row in log]
            assert turns == sorted(turns), "two turns are mixed"
            assert faults_of(self.store.transcript(name).history()) == []
        said = self.said()
        for actor in self.actors.values():
            assert {*actor.stored} <= {*said}, "something acknowledged is missing"
        assert len(said) == len({*said}), "something is there twice"

    def said(self) -> list[str]:
        """What the actors said, wherever it is stored."""
        return [name for log in self.logs.values() for row in log if (name := _name(row))]

    def _check_the_end(self) -> None:
        for log in self.logs.values():
            assert unanswered(log) == [], "a call was left without a result"
            assert len(interrupted(log)) == len({*interrupted(log)})
            turns = {row.turn: _name(row) for row in reversed(log)}
            assert all(name.startswith("question") for name in turns.values())
        stored = {name for actor in self.actors.values() for name in actor.stored}
        assert stored == {*self.said()}, "something is there that nobody was told of"


def _name(row: Row) -> str:
    """What an actor calls a row; nothing for the results that say interrupted."""
    if row.kind == "interrupted":
        return ""
    calls = row.body.get("tool_calls")
    return str(calls[0]["id"] if calls else row.content)


@pytest.fixture
def handles(where: str) -> Iterator[tuple[Store, Store]]:
    first, second = (open_apart(where) for _ in range(2))
    yield first, second
    assert first.check() == []
    first.close()
    second.close()


def sample(handles: tuple[Store, Store], of: Sequence[T]) -> list[T]:
    """All of them; or as many as can be afforded, spread evenly at random, always the same."""
    is_postgres = isinstance(handles[0].context.db, PostgresDatabase)
    size = min(len(of), ON_POSTGRES if is_postgres else MANY)
    return random.Random(len(of)).sample(of, size)


def play_all(
    handles: tuple[Store, Store],
    first: Sequence[str],
    second: Sequence[str],
    events: Sequence[str],
    ids: str = "12",
    check: Callable[[Play], None] = lambda play: None,
) -> int:
    """Play the orders of two turns and some events; how many there are."""
    found = [*orders(len(first), len(second), events)]
    for number, order in enumerate(sample(handles, found)):
        play = Play(handles, str(number), {A: first, B: second}, ids)
        try:
            play.run(order)
            check(play)
        except BaseException as problem:
            problem.add_note(f"in the order {', '.join(order)}")
            raise
    return len(found)


def test_orders_are_complete() -> None:
    assert len({*orders(4, 2, ())}) == 15
    assert len({*orders(4, 2, EVENTS[:2])}) == 15 * 7 * 8
    assert len([*orders(3, 3, EVENTS)]) == len({*orders(3, 3, EVENTS)}) == 20 * 7 * 8 * 9 * 10


@pytest.mark.examples
@pytest.mark.parametrize(
    "events",
    [
        (),
        *combinations(EVENTS, 1),
        *(pair for pair in combinations(EVENTS, 2) if EXPIRY in pair),
        *(
            pytest.param(pair, marks=pytest.mark.slow)
            for pair in combinations(EVENTS, 2)
            if EXPIRY not in pair
        ),
    ],
)
def test_every_order_of_two_turns_and_one_disturbance(
    handles: tuple[Store, Store], events: tuple[str, ...]
) -> None:
    assert play_all(handles, LONG, SHORT, events) >= 15


@pytest.mark.examples
@pytest.mark.parametrize("events", [(), (EXPIRY,), (EXPIRY, RESET), (EXPIRY, UNDO)])
def test_every_order_of_a_message_delivered_twice(
    handles: tuple[Store, Store], events: tuple[str, ...]
) -> None:
    def check(play: Play) -> None:
        one, two = play.actors.values()
        assert play.said().count("question 1") == 1
        answers = {actor.turn.answer for actor in (one, two) if not actor.is_lost}
        assert len(answers) == 1, "two answers"
        if EXPIRY not in events:
            assert answers in ({"answer A"}, {"answer B"})
            assert one.turn.duplicate != two.turn.duplicate

    assert play_all(handles, LONG, SHORT, events, ids="11", check=check) >= 15


@pytest.mark.slow
@pytest.mark.parametrize("events", [*combinations(EVENTS, 3), (EXPIRY, EXPIRY, UNDO)])
def test_every_order_with_three_disturbances(
    handles: tuple[Store, Store], events: tuple[str, ...]
) -> None:
    assert play_all(handles, LONG, SHORT, events) == 15 * 7 * 8 * 9


@pytest.mark.slow
@pytest.mark.parametrize("events", [*combinations(EVENTS, 2), (EXPIRY, EXPIRY)])
def test_every_order_of_two_long_turns(
    handles: tuple[Store, Store], events: tuple[str, ...]
) -> None:
    assert play_all(handles, LONG, LONG, events) == 70 * 9 * 10


def test_a_deleted_session_takes_nothing_in_any_order(handles: tuple[Store, Store]) -> None:
    """Deleting at each point, with another conversation beginning in its place."""
    store, other = handles
    for point in range(len(LONG) + 1):
        source = Source("telegram", f"deleted {point}")
        actor = Actor(A, store, source, LONG, "1")
        for _ in range(point):
            actor.step()
        session = store.sessions.current(store.sessions.key(source))
        if session is not None:
            other.sessions.delete(session.id)
        secret = Actor(B, other, Source("telegram", f"secret {point}"), SHORT, "2")
        secret.step()
        try:
            while actor.steps:
                actor.step()
        except NotFound:
            actor.turn.leave(failed=True)
        secret.step()
        rows = log_of(store, secret.turn.session)
        assert [row.content for row in rows] == ["question 2", "answer B"]
