"""The turn of one caller: writing, answering, leaving."""

from __future__ import annotations

import pytest

import tertulia.aio
from tertulia import IllegalMove, LeaseLost, SessionBusy, Store, Turn, Usage
from tertulia.testing import Handles
from tests.records.store_inspection import (
    ANA,
    ask,
    call,
    contents,
    interrupted,
    let_lease_run_out,
    log_of,
    open_beside,
    turn_states,
    unanswered,
)
from tests.records.turns.exchanges import Broken, cut_off, exchange


@pytest.mark.parametrize("problem", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_turn_is_closed_after_any_exception(store: Store, problem: type[BaseException]) -> None:
    with pytest.raises(problem), store.turn(ANA, "hello"):
        raise problem
    assert turn_states(store) == ["interrupted"]
    exchange(store, "again", "yes", wait=0)


def test_exception_of_the_agent_is_raised(store: Store) -> None:
    def work(turn: Turn) -> None:
        store.sessions.delete(turn.session.id)
        raise Broken

    with pytest.raises(Broken), store.turn(ANA, "hello") as turn:
        work(turn)


def test_turn_without_an_answer_is_stored_as_silent(store: Store) -> None:
    with store.turn(ANA, "just so you know", message_id="1") as turn:
        turn.add_assistant(None, tool_calls=[call()])
    assert turn_states(store) == ["silent"]
    assert interrupted(log_of(store, turn.session)) == ["c1"]
    with store.turn(ANA, "just so you know", message_id="1") as again:
        assert (again.duplicate, again.answer) == (True, None)
    exchange(store, "hello", "hi", wait=0)


def test_nothing_is_written_after_the_block(store: Store) -> None:
    with store.turn_control(ANA, "hello") as turn:
        turn.add_assistant(None, tool_calls=[call()])
    before = contents(store, turn.session)
    for write in (
        lambda: turn.add_assistant("late"),
        lambda: turn.add_assistant("late", tool_calls=[call("c2")]),
        lambda: turn.add_tool_result("c1", "late"),
        lambda: turn.add_usage(Usage(1)),
        lambda: turn.deliver("late"),
    ):
        with pytest.raises(IllegalMove, match="over"):
            write()
    turn.leave()
    assert contents(store, turn.session) == before
    assert store.outbox.find().items == ()
    assert store.sessions.require(turn.session.id).usage.total == 0


def test_an_answer_may_come_in_parts(store: Store, handles: Handles) -> None:
    apart = open_beside(handles)
    with store.turn(ANA, "tell me", message_id="1") as turn:
        turn.add_assistant("First,", more=True)
        for message_id in (None, "1"):
            with pytest.raises(SessionBusy), apart.turn(ANA, "?", message_id=message_id, wait=0):
                pass
        turn.add_assistant("second,", more=True)
    with apart.turn(ANA, "tell me", message_id="1") as again:
        assert (again.duplicate, again.answer) == (True, "second,")
    apart.close()
    assert contents(store, turn.session) == ["tell me", "First,", "second,"]
    assert turn_states(store) == ["answered"]


def test_turn_that_fails_between_two_parts_is_resumed(store: Store) -> None:
    cut_off(store, "tell me", lambda turn: turn.add_assistant("First,", more=True), message_id="1")
    with store.turn(ANA, "tell me", message_id="1") as turn:
        assert not turn.duplicate
        turn.add_assistant("second.")
    assert contents(store, turn.session) == ["tell me", "First,", "second."]


def test_a_turn_may_go_on_after_its_answer(store: Store, handles: Handles) -> None:
    apart = open_beside(handles)
    with store.turn(ANA, "look", message_id="1") as turn:
        turn.add_assistant("Blue.")
        turn.add_assistant(None, tool_calls=[call()])
        with pytest.raises(SessionBusy), apart.turn(ANA, "?", wait=0):
            pass
        with apart.turn(ANA, "look", message_id="1", wait=0) as again:
            assert again.answer == "Blue."
        turn.add_tool_result("c1", "grey")
        turn.add_assistant("No, grey.")
    with apart.turn(ANA, "look", message_id="1", wait=0) as again:
        assert again.answer == "No, grey."
    apart.close()


@pytest.mark.parametrize("is_killed", [False, True])
def test_answered_turn_stays_answered(store: Store, handles: Handles, is_killed: bool) -> None:
    apart = open_beside(handles)

    def go_on(turn: Turn) -> None:
        turn.add_assistant("Blue.")
        turn.add_assistant(None, tool_calls=[call()])
        if is_killed:
            let_lease_run_out(store, turn.session)
            exchange(apart, "hello?", "Yes.")

    turn = cut_off(store, "look", go_on, message_id="1")
    with apart.turn(ANA, "look", message_id="1") as again:
        assert (again.duplicate, again.answer) == (True, "Blue.")
    apart.close()
    assert unanswered(log_of(store, turn.session)) == []


def test_deliveries_and_usage_may_follow_the_answer(store: Store, handles: Handles) -> None:
    apart = open_beside(handles)
    with store.turn(ANA, "hello") as turn:
        turn.add_assistant("hi")
        with apart.turn(ANA, "next", wait=0) as following:
            turn.deliver("hi")
            turn.add_usage(Usage(7))
            with pytest.raises(LeaseLost):
                turn.add_assistant("and another thing")
            assert ask(store, "select open_turn from sessions") == 2
            following.add_assistant("yes")
        turn.deliver("and bye")
    exchange(apart, "bye", "bye")
    apart.close()
    assert "interrupted" not in store.sessions.explain(turn.session.id)
    assert contents(store, turn.session) == ["hello", "hi", "next", "yes", "bye", "bye"]
    assert store.sessions.require(turn.session.id).usage.input == 7
    assert len(store.outbox.find().items) == 2
    assert turn_states(store) == ["answered"] * 3


@pytest.mark.parametrize("turn", [Turn, tertulia.aio.Turn], ids=["sync", "async"])
def test_turn_has_exactly_the_promised_names(turn: type) -> None:
    assert {name for name in dir(turn) if not name.startswith("_")} == {
        "session",
        "notice",
        "duplicate",
        "answer",
        "context_prompt",
        "history",
        "add_assistant",
        "add_tool_result",
        "add_usage",
        "deliver",
    }
