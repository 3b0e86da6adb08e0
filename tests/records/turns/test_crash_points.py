"""`kill -9` before and after the commit of every step of a turn with tools.

The next turn runs, the history is legal, nothing that was acknowledged is missing, no tool is used
twice, and the message that comes again is answered once.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import tertulia
from tertulia import Settings, Store
from tertulia.records.turns import enter, ticket
from tertulia.testing.fault_points import Moment
from tertulia.testing.fixtures import wait_until
from tests.records.store_inspection import (
    ANA,
    IDLE,
    PATIENCE,
    Row,
    ask,
    call,
    execute,
    faults_of,
    interrupted,
    log_of,
    now_in,
    turn_states,
    unanswered,
    without_index,
)
from tests.records.turns.turn_processes import STEPS, Child, die_at, die_entering, die_waiting

# Nobody waits for a child before it is dead, and then not long.
LEASE = 0.1
MOMENTS: tuple[Moment, ...] = ("before", "after")

at_every_step = pytest.mark.parametrize(
    ("step", "moment"), [(step, moment) for step in STEPS for moment in MOMENTS]
)


def stored_by(step: str, moment: Moment) -> list[str]:
    """The steps that are in the store after a death there."""
    return [*STEPS[: STEPS.index(step) + (moment == "after")]]


def run_to_death(where: str, folder: Path, step: str, moment: Moment) -> list[str]:
    """Let a child die at a step; what was acknowledged to it."""
    with Child(die_at, where, folder, step, moment, LEASE) as child:
        acknowledged = child.rest()
        assert child.end() == -signal.SIGKILL
    assert acknowledged == [*STEPS[: STEPS.index(step)]]
    return acknowledged


def opened(where: str, lease: float = LEASE) -> Store:
    settings = Settings(zone="UTC", lease_seconds=lease, policies=IDLE)
    return without_index(tertulia.open(where, settings=settings))


def effects(folder: Path) -> Counter[str]:
    """How often each tool was used."""
    place = folder / "effects"
    return Counter(place.read_text().split()) if place.exists() else Counter()


def steps_in(store: Store, rows: list[Row]) -> list[str]:
    """The steps of the child's turn that a log and the other tables hold."""
    turn = next((row.turn for row in rows if row.content == "look"), None)
    own = [row for row in rows if row.turn == turn and row.kind is None]
    found = []
    for row in own:
        if row.role == "user":
            found.append("enter")
        elif row.role == "tool":
            found.append({"c1": "first result", "c2": "second result"}[row.body["tool_call_id"]])
        else:
            found.append("calls" if row.body.get("tool_calls") else "answer")
    parcels = [parcel.body["text"] for parcel in store.outbox.find().items]
    assert (parcels.count("Blue."), len(parcels)) == (
        found.count("answer"),
        found.count("answer") + parcels.count("one moment"),
    )
    found += ["delivery"] * parcels.count("one moment")
    calls = [row[0] for row in execute(store, "select input from usage where turn = 1")]
    found += ["usage"] * calls.count(1)
    assert calls.count(10) == found.count("calls")
    assert calls.count(20) == found.count("answer")
    return found


@at_every_step
def test_the_next_message_is_answered(
    where: str, tmp_path: Path, step: str, moment: Moment
) -> None:
    run_to_death(where, tmp_path, step, moment)
    before = effects(tmp_path)
    with opened(where) as store:
        assert store.check() == []
        with store.turn(ANA, "and now?", message_id="2", wait=PATIENCE) as turn:
            history = turn.history()
            assert faults_of(history) == []
            assert history[-1]["content"] == "and now?"
            turn.add_assistant("Here I am.")
        rows = log_of(store, turn.session)
        assert sorted(steps_in(store, rows)) == sorted(stored_by(step, moment))
        assert unanswered(rows) == []
        assert interrupted(rows) == left_by(step, moment)
        assert turn_states(store)[-1] == "answered"
        assert len(turn_states(store)) == (2 if stored_by(step, moment) else 1)
        totals = store.sessions.require(turn.session.id).usage
        assert totals.input == ask(store, "select coalesce(sum(input), 0) from usage")
        assert store.check() == []
    assert effects(tmp_path) == before
    assert set(before.values()) <= {1}


def left_by(step: str, moment: Moment) -> list[str]:
    """The calls that were stored, and whose results were not."""
    stored = stored_by(step, moment)
    results = {"c1": "first result", "c2": "second result"}
    return [name for name, result in results.items() if "calls" in stored and result not in stored]


@at_every_step
def test_redelivered_message_is_answered_once(
    where: str, tmp_path: Path, step: str, moment: Moment
) -> None:
    run_to_death(where, tmp_path, step, moment)
    was_stored = stored_by(step, moment)
    before = effects(tmp_path)
    with opened(where) as store:
        with store.turn(ANA, "look", message_id="1", wait=PATIENCE) as turn:
            assert turn.duplicate == ("answer" in was_stored)
            if turn.duplicate:
                assert turn.answer == "Blue."
            else:
                assert faults_of(turn.history()) == []
                assert turn.history()[0]["content"] == "look"
                # An agent that sees its calls cut off does not make them again by itself.
                turn.deliver("one moment", delivery="moment")
                turn.add_assistant("Blue.", deliver="origin")
        rows = log_of(store, turn.session)
        assert [row.content for row in rows].count("look") == 1
        assert [row.content for row in rows].count("Blue.") == 1
        assert interrupted(rows) == left_by(step, moment)
        assert {row.turn for row in rows} == {1}
        assert turn_states(store) == ["answered"]
        delivered = [parcel.body["text"] for parcel in store.outbox.find().items]
        assert sorted(delivered) == ["Blue.", "one moment"]
        with store.turn(ANA, "look", message_id="1", wait=0) as again:
            assert (again.duplicate, again.answer) == (True, "Blue.")
        assert log_of(store, turn.session) == rows
        assert store.check() == []
    assert effects(tmp_path) == before


@pytest.mark.parametrize("moment", MOMENTS)
def test_process_killed_during_recovery_loses_nothing(
    where: str, tmp_path: Path, moment: Moment
) -> None:
    run_to_death(where, tmp_path, "first result", "before")
    with opened(where) as store:
        wait_until(lambda: _lease_is_over(store), "the lease runs out")
        with Child(die_entering, where, moment, LEASE) as child:
            assert child.end() == -signal.SIGKILL
        with store.turn(ANA, "and now?", message_id="2", wait=PATIENCE) as turn:
            assert not turn.duplicate
            assert faults_of(turn.history()) == []
            turn.add_assistant("Here I am.")
        rows = log_of(store, turn.session)
        assert [row.content for row in rows].count("and now?") == 1
        assert interrupted(rows) == ["c1", "c2"]
        assert turn_states(store) == ["interrupted", "answered"]


def _lease_is_over(store: Store) -> bool:
    return bool(ask(store, "select lease_until from sessions") < now_in(store))


def test_process_killed_in_the_queue_blocks_nobody(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The ticket of the child expires for who comes next.
    monkeypatch.setattr(ticket, "TICKET_SECONDS", 0.2)
    for module in (ticket, enter):
        monkeypatch.setattr(module, "TICKET_MICROS", 200_000)
    with opened(where, PATIENCE) as store:  # a lease that ends meanwhile would let the child in
        with store.turn(ANA, "one") as turn, Child(die_waiting, where) as child:
            assert child.hear() == "waiting"
            child.tell("die")
            assert child.end() == -signal.SIGKILL
            turn.add_assistant("1")
        with store.turn(ANA, "two", wait=PATIENCE) as turn:
            turn.add_assistant("2")
        assert [row.content for row in log_of(store, turn.session)] == ["one", "1", "two", "2"]


@pytest.fixture
def half_done(where: str, tmp_path: Path) -> Iterator[Store]:
    """A store with a turn that died after its calls."""
    run_to_death(where, tmp_path, "calls", "after")
    with opened(where) as store:
        yield store


def test_resumed_turn_may_call_tools_again(half_done: Store) -> None:
    with half_done.turn(ANA, "look", message_id="1", wait=PATIENCE) as turn:
        turn.add_assistant(None, tool_calls=[call("c1")])
        turn.add_tool_result("c1", "blue, this time")
        turn.add_assistant("Blue.")
    history = half_done.transcript(turn.session.id).history()
    assert faults_of(history) == []
    results = [message["content"] for message in history if message["role"] == "tool"]
    assert results[-1] == "blue, this time"
    assert len(results) == 3


def test_explain_shows_the_interruption(half_done: Store) -> None:
    with half_done.turn(ANA, "and now?", wait=PATIENCE) as turn:
        turn.add_assistant("Here I am.")
    assert "interrupted: turn 1, calls 2" in half_done.sessions.explain(turn.session.id)
