"""Every order in which the steps of two turns and of what disturbs them can fall.

A turn is a short list of transactions, and transactions are serial. So whatever threads, processes
and machines do, what happens to the store is one of these orders, and each is played here against
the real store: two turns (of handles that know nothing of each other), an expiry of the lease, a
renewal, an undo, a reset. After every step the laws have to hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from pathlib import Path

import pytest

from tertulia import LeaseLost, NotFound, Source, Store, Turn, Usage
from tests.turns.scene import (
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

A, B = "A", "B"
EXPIRY, RENEWAL, UNDO, RESET = "expiry", "renewal", "undo", "reset"
EVENTS = (EXPIRY, RENEWAL, UNDO, RESET)

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

    def __init__(self, name: str, store: Store, source: Source, steps: Sequence[str], id_: str):
        self.name = name
        self.store = store
        self.turn: Turn = store.turn(source, f"question {name}", message_id=id_)
        self.steps = list(steps)
        self.stored: list[str] = []  # what was acknowledged
        self.is_lost = False

    @property
    def is_inside(self) -> bool:
        return bool(self.stored) and bool(self.steps)

    def step(self) -> None:
        if not self.steps:
            return
        name = self.steps[0]
        if name == "enter":
            if self.turn.try_to_enter():
                self.steps.pop(0)
                if self.turn.duplicate:
                    self.steps.clear()
                else:
                    self.stored.append(f"question {self.name}")
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
        if name == "call":
            self.turn.add_assistant(None, tool_calls=[call(f"call {self.name}")])
            self.stored.append(f"call {self.name}")
        elif name == "result":
            self.turn.add_tool_result(f"call {self.name}", f"result {self.name}")
            self.stored.append(f"result {self.name}")
        else:
            self.turn.add_assistant(f"answer {self.name}", usage=Usage(1))
            self.stored.append(f"answer {self.name}")


class Play:
    """One order, in a conversation of its own."""

    def __init__(
        self, handles: tuple[Store, Store], chat: str, steps: dict[str, Sequence[str]], ids: str
    ) -> None:
        self.store = handles[0]
        self.source = Source("telegram", chat, user_id=chat)
        self.actors = {
            name: Actor(name, handle, self.source, steps[name], id_)
            for name, handle, id_ in zip((A, B), handles, ids, strict=True)
        }
        self.key = self.store.sessions.key(self.source)

    def run(self, order: Sequence[str]) -> None:
        for step in order:
            before = self.logs()
            self._do(step)
            self._check(before)
        self._to_the_end()

    def logs(self) -> dict[str, list[Row]]:
        found = execute(self.store, "select id from sessions where key = ? order by ref", self.key)
        return {row[0]: log_of(self.store, row[0]) for row in found}

    def _do(self, step: str) -> None:
        if step in self.actors:
            self._step(self.actors[step])
            return
        session = self.store.sessions.current(self.key)
        if session is None:
            return
        if step == EXPIRY:
            let_lease_run_out(self.store, session)
        elif step == RENEWAL:
            self.actors[A].turn.renew()
        elif step == UNDO:
            self.store.transcript(session.id).undo()
        else:
            self.store.sessions.reset(self.key)

    def _step(self, actor: Actor) -> None:
        """An actor whose session another one has entered since can store nothing."""
        other = self.actors[B if actor.name == A else A]
        was_inside = actor.is_inside
        before = self.logs()
        newer = was_inside and self._came_later(other, actor)
        actor.step()
        if newer:
            assert actor.is_lost
            assert self.logs() == before
        elif was_inside:
            assert not actor.is_lost

    def _came_later(self, one: Actor, other: Actor) -> bool:
        places = one.turn._place, other.turn._place
        if not one.stored or places[1] is None:
            return False
        if one.turn.session.id != other.turn.session.id:
            return False
        found = execute(
            self.store, "select epoch from sessions where id = ?", other.turn.session.id
        )
        assert isinstance(found[0][0], int)
        return found[0][0] > places[1].epoch

    def _to_the_end(self) -> None:
        """What is left of both, one after the other; where one is stuck, its lease runs out."""
        for name in (A, B, A, B):
            before = self.logs()
            actor = self.actors[name]
            for _ in range(len(LONG) + 1):
                self._step(actor)
            self._check(before)
            if name == B:
                for session_id in self.logs():
                    let_lease_run_out(self.store, session_id)
        assert not any(actor.steps for actor in self.actors.values())
        self._check_the_end()

    def _check(self, before: dict[str, list[Row]]) -> None:
        after = self.logs()
        for session_id, rows in after.items():
            old = before.get(session_id, [])
            assert rows[: len(old)] == old, "what was stored has changed"
            turns = [row.turn for row in rows]
            assert turns == sorted(turns), "two turns are mixed"
            assert faults_of(self.store.transcript(session_id).history()) == []
        everything = [_name(row) for rows in after.values() for row in rows]
        for actor in self.actors.values():
            for stored in actor.stored:
                assert everything.count(stored) == 1, f"{stored} is not there once"

    def _check_the_end(self) -> None:
        logs = self.logs()
        for rows in logs.values():
            assert unanswered(rows) == [], "a call was left without a result"
            assert len(interrupted(rows)) == len({*interrupted(rows)})
            for turn in {row.turn for row in rows}:
                own = [_name(row) for row in rows if row.turn == turn]
                assert len({name[-1] for name in own if name}) == 1, "a turn of two"
                assert own[0] in ("question A", "question B")
        stored = [name for actor in self.actors.values() for name in actor.stored]
        said = [_name(row) for rows in logs.values() for row in rows]
        assert sorted(filter(None, said)) == sorted(stored), "something nobody was told of"


def _name(row: Row) -> str:
    """What an actor calls a row; nothing for the results that say interrupted."""
    if row.kind == "interrupted":
        return ""
    calls = row.body.get("tool_calls")
    return str(calls[0]["id"] if calls else row.content)


@pytest.fixture
def handles(tmp_path: Path) -> Iterator[tuple[Store, Store]]:
    first, second = (open_apart(tmp_path / "talk.db") for _ in range(2))
    for store in (first, second):
        store._indexer.stop()  # it would only take its share of the time
    yield first, second
    assert first.check() == []
    first.close()
    second.close()


def play_all(
    handles: tuple[Store, Store],
    first: Sequence[str],
    second: Sequence[str],
    event_sets: Sequence[Sequence[str]],
    ids: str = "12",
    check: Callable[[Play], None] = lambda play: None,
) -> int:
    played = 0
    for events in event_sets:
        for order in orders(len(first), len(second), events):
            played += 1
            play = Play(handles, str(played), {A: first, B: second}, ids)
            try:
                play.run(order)
                check(play)
            except BaseException as problem:
                problem.add_note(f"in the order {', '.join(order)}")
                raise
    return played


def test_orders_are_all_there_are() -> None:
    assert len({*orders(4, 2, ())}) == 15
    assert len({*orders(4, 2, EVENTS[:2])}) == 15 * 7 * 8
    assert len([*orders(3, 3, EVENTS)]) == len({*orders(3, 3, EVENTS)}) == 20 * 7 * 8 * 9 * 10


@pytest.mark.parametrize("events", [(), *combinations(EVENTS, 1), *combinations(EVENTS, 2)])
def test_every_order_of_two_turns_and_what_disturbs_them(
    handles: tuple[Store, Store], events: tuple[str, ...]
) -> None:
    assert play_all(handles, LONG, SHORT, [events]) >= 15


@pytest.mark.parametrize("events", [(), (EXPIRY,), (EXPIRY, EXPIRY), (EXPIRY, RESET)])
def test_every_order_of_one_message_that_comes_twice(
    handles: tuple[Store, Store], events: tuple[str, ...]
) -> None:
    def check(play: Play) -> None:
        one, two = play.actors.values()
        said = [row for rows in play.logs().values() for row in rows if row.role == "user"]
        assert len(said) == 1, "the message is there twice"
        answers = {actor.turn.answer for actor in (one, two) if not actor.is_lost}
        assert len(answers) == 1, "two answers"
        if EXPIRY not in events:
            assert answers in ({"answer A"}, {"answer B"})
            assert one.turn.duplicate != two.turn.duplicate

    assert play_all(handles, LONG, SHORT, [events], ids="11", check=check) >= 15


@pytest.mark.slow
@pytest.mark.parametrize("events", [*combinations(EVENTS, 3), (EXPIRY, EXPIRY, UNDO)])
def test_every_order_with_three_disturbances(
    handles: tuple[Store, Store], events: tuple[str, ...]
) -> None:
    assert play_all(handles, LONG, SHORT, [events]) == 15 * 7 * 8 * 9


@pytest.mark.slow
@pytest.mark.parametrize("events", [*combinations(EVENTS, 2), (EXPIRY, EXPIRY)])
def test_every_order_of_two_long_turns(
    handles: tuple[Store, Store], events: tuple[str, ...]
) -> None:
    assert play_all(handles, LONG, LONG, [events]) == 70 * 9 * 10


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
        assert [row.content for row in rows] == ["question B", "answer B"]
