"""Calls without a result get one when their turn ends."""

from __future__ import annotations

from typing import Any

import pytest

from tertulia import IllegalMove, LeaseLost, Store, Turn
from tertulia.records import session_rows
from tertulia.records.turns.interrupted import revoke_open_turn
from tertulia.storage.base import Transaction
from tertulia.testing import Handles
from tests.records.store_inspection import (
    ANA,
    call,
    faults_of,
    interrupted,
    log_of,
    open_beside,
    turn_states,
    unanswered,
)
from tests.records.turns.exchanges import cut_off


def test_a_turn_that_fails_leaves_typed_results_and_no_lease(
    store: Store, handles: Handles
) -> None:
    turn = cut_off(
        store,
        "look",
        lambda turn: turn.add_assistant(None, tool_calls=[call("c1"), call("c2"), call("c3")]),
        lambda turn: turn.add_tool_result("c2", "blue"),
    )
    rows = log_of(store, turn.session)
    assert interrupted(rows) == ["c1", "c3"]
    assert unanswered(rows) == []
    assert [row.body["name"] for row in rows[3:]] == ["look", "look"]
    assert turn_states(store) == ["interrupted"]
    apart = open_beside(handles)
    with apart.turn(ANA, "and now?", wait=0) as after:
        assert faults_of(after.history()) == []
        after.add_assistant("Sorry.")
    apart.close()
    assert turn_states(store) == ["interrupted", "answered"]


def test_only_calls_of_the_turn_itself_are_closed(store: Store) -> None:
    """Others may append to the transcript meanwhile; what they leave open is theirs."""
    theirs = {"id": "theirs", "type": "function", "function": {"name": "go", "arguments": "{}"}}

    def append(turn: Turn) -> None:
        turn.add_assistant(None, tool_calls=[call("own")])
        transcript = store.transcript(turn.session.id)
        transcript.append({"role": "user", "content": "imported"})
        transcript.append({"role": "assistant", "content": None, "tool_calls": [theirs]})

    turn = cut_off(store, "look", append)
    rows = log_of(store, turn.session)
    assert interrupted(rows) == ["own"]
    assert rows[-1].turn == rows[0].turn


def test_answer_closes_calls_without_a_result(store: Store) -> None:
    with store.turn(ANA, "look") as turn:
        turn.add_assistant(None, tool_calls=[call("c1"), call("c2")])
        turn.add_tool_result("c1", "blue")
        turn.add_assistant("Blue, that is enough.")
        with pytest.raises(IllegalMove, match="already"):
            turn.add_tool_result("c2", "too late")
    rows = log_of(store, turn.session)
    assert interrupted(rows) == ["c2"]
    assert [row.role for row in rows] == ["user", "assistant", "tool", "tool", "assistant"]
    with store.turn(ANA, "look") as turn:
        assert turn.history()[-2]["content"] == "Blue, that is enough."


@pytest.mark.parametrize(
    "bare", [{"id": "c1"}, {"id": "c1", "function": {}}, {"id": "c1", "name": "a b"}]
)
def test_calls_with_few_fields_are_closed_too(store: Store, bare: dict[str, Any]) -> None:
    with store.turn(ANA, "look") as turn:
        turn.add_assistant(None, tool_calls=[bare])
        turn.add_assistant("Never mind.")
    cut_off(store, "again", lambda turn: turn.add_assistant(None, tool_calls=[bare]))
    rows = log_of(store, turn.session)
    assert interrupted(rows) == ["c1", "c1"]
    assert faults_of(turn.history()) == []


def test_a_revoked_turn_can_write_nothing_more(store: Store) -> None:
    def revoke(tx: Transaction) -> None:
        row = session_rows.require(tx, turn.session.id)
        revoke_open_turn(tx, row, store.now())

    turn = store.turn(ANA, "look")
    turn.__enter__()
    turn.add_assistant(None, tool_calls=[call("c1")])
    store.context.write(revoke)
    with pytest.raises(LeaseLost):
        turn.add_tool_result("c1", "blue")
    assert interrupted(log_of(store, turn.session)) == ["c1"]
    assert turn_states(store) == ["interrupted"]
