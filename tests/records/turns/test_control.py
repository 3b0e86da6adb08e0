"""TurnControl: the calls for agents that have a message form of their own."""

from __future__ import annotations

import contextlib

import pytest

from tertulia import LeaseLost, NotFound, Session, Store, Usage
from tertulia.testing import Handles
from tests.records.store_inspection import (
    ANA,
    call,
    contents,
    interrupted,
    let_lease_run_out,
    log_of,
    open_beside,
    turn_states,
    unanswered,
)


def test_extend_stores_messages_as_they_are(store: Store) -> None:
    with store.turn_control(ANA) as turn:
        turn.extend([{"role": "user", "content": "a", "own": [1]}], usage=Usage(3, 1))
        assert turn.extend([{"role": "assistant", "content": "b"}], is_last=True) == 2
        assert turn.answer == "b"
    assert [(row.turn, row.content) for row in log_of(store, turn.session)] == [(1, "a"), (1, "b")]
    assert turn_states(store) == ["answered"]
    assert store.sessions.require(turn.session.id).usage.total == 4


def test_on_enter_is_called_once_with_the_session_of_the_turn(store: Store) -> None:
    sessions: list[Session] = []
    for _ in range(2):  # the second finds the answer of the first
        with store.turn_control(ANA, "a", message_id="1", on_enter=sessions.append) as turn:
            if not turn.duplicate:
                turn.add_assistant("b")
    assert turn.duplicate
    assert [session.id for session in sessions] == [turn.session.id]


def test_turn_whose_on_enter_fails_is_left(store: Store) -> None:
    def fail(session: Session) -> None:
        raise NotFound("It is not there.")

    with pytest.raises(NotFound), store.turn_control(ANA, "a", on_enter=fail):
        pytest.fail("the turn was entered")
    assert turn_states(store) == ["interrupted"]
    with store.turn(ANA, "b", wait=0) as turn:
        turn.add_assistant("c")


def test_extend_with_an_old_epoch_stores_nothing(handles: Handles, store: Store) -> None:
    turn = store.turn_control(ANA, "a")
    with contextlib.suppress(LeaseLost), turn:
        let_lease_run_out(store, turn.session)
        with open_beside(handles).turn_control(ANA, "b") as second:
            with pytest.raises(LeaseLost):
                turn.extend([{"role": "assistant", "content": "late"}], is_last=True)
            second.add_assistant("re b")
    assert contents(store, turn.session) == ["a", "b", "re b"]


def test_kept_calls_get_their_results_in_a_later_turn(store: Store) -> None:
    turn = store.turn_control(ANA, "may I?")
    turn.__enter__()
    turn.add_assistant(None, tool_calls=[call()])
    turn.leave(keep_calls=True)
    assert unanswered(log_of(store, turn.session)) == ["c1"]
    with store.turn_control(ANA) as later:
        later.extend([{"role": "tool", "tool_call_id": "c1", "content": "done"}])
        later.add_assistant("it is done")
    assert interrupted(log_of(store, turn.session)) == []
    assert [message["role"] for message in later.history()] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


def test_abandoned_turn_is_not_renewed(store: Store) -> None:
    with store.turn_control(ANA, "a") as turn:
        assert turn.renew()
        turn.is_abandoned = lambda: True
        assert not turn.renew()
