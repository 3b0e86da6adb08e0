"""What happens to a turn when somebody changes its session while it is inside.

Reset, switch, fork and end: the turn goes on in its session, which has ended. Undo and the like:
what it had stored is seen no longer, what it stores from then on is. Delete: nothing is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tertulia import Error, LeaseLost, NotFound, SessionBusy, Store, Usage
from tertulia.records.turns.control import TurnControl
from tertulia.storage.sqlite.database import SqliteDatabase
from tertulia.testing import Handles
from tests.records.store_inspection import (
    ANA,
    BEN,
    ask,
    call,
    contents,
    faults_of,
    let_lease_run_out,
    log_of,
    open_beside,
    turn_states,
    unanswered,
)


@pytest.fixture
def apart(handles: Handles) -> Iterator[Store]:
    """A handle as in another process."""
    store = open_beside(handles)
    yield store
    store.close()


def answer_with_a_call(turn: TurnControl) -> None:
    turn.add_assistant(None, tool_calls=[call("late")])
    turn.add_tool_result("late", "blue")
    turn.add_usage(Usage(3))
    turn.deliver("blue, they say")
    turn.add_assistant("Blue.", usage=Usage(4))


ENDINGS: dict[str, Callable[[Store, TurnControl], object]] = {
    "reset": lambda store, turn: store.sessions.reset(turn.session.key),
    "end": lambda store, turn: store.sessions.end(turn.session.id, "done"),
    "fork": lambda store, turn: store.sessions.fork(turn.session.id),
    "force_new": lambda store, turn: store.sessions.open(ANA, force_new=True),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_turn_continues_in_its_ended_session(store: Store, apart: Store, ending: str) -> None:
    with store.turn_control(ANA, "look", message_id="1") as turn:
        turn.add_assistant(None, tool_calls=[call("c1")])
        ENDINGS[ending](apart, turn)
        with apart.turn_control(ANA, "something else", wait=0) as following:
            assert following.session.id != turn.session.id
            turn.add_tool_result("c1", "grey")
            answer_with_a_call(turn)
            following.add_assistant("Yes?")
    ended = store.sessions.require(turn.session.id)
    assert ended.ended_at is not None
    assert ended.usage.input == 7
    assert contents(store, ended) == ["look", None, "grey", None, "blue", "Blue."]
    assert contents(store, following.session)[-2:] == ["something else", "Yes?"]
    assert "Blue." not in contents(store, following.session)
    with apart.turn_control(ANA, "look", message_id="1", wait=0) as again:
        assert (again.duplicate, again.answer) == (True, "Blue.")
    store.sessions.switch(turn.session.key, turn.session.id)
    with apart.turn_control(ANA, "where were we?", wait=0) as back:
        assert [message["content"] for message in back.history()][-2:] == [
            "Blue.",
            "where were we?",
        ]


def test_turn_continues_when_the_conversation_is_switched(store: Store, apart: Store) -> None:
    with store.turn_control(ANA, "first") as turn:
        turn.add_assistant("1")
    old = turn.session
    store.sessions.reset(old.key)
    with store.turn_control(ANA, "second") as turn:
        apart.sessions.switch(old.key, old.id)
        with apart.turn_control(ANA, "third", wait=0) as following:
            assert following.session.id == old.id
            turn.add_assistant("2")
            following.add_assistant("3")
    assert contents(store, turn.session) == ["second", "2"]
    assert contents(store, old) == ["first", "1", "third", "3"]


def test_switching_back_waits_for_the_turn_that_is_still_inside(store: Store, apart: Store) -> None:
    with store.turn_control(ANA, "first") as turn:
        apart.sessions.reset(turn.session.key)
        apart.sessions.switch(turn.session.key, turn.session.id)
        with pytest.raises(SessionBusy), apart.turn_control(ANA, "second", wait=0):
            pass
        turn.add_assistant("1")
    with apart.turn_control(ANA, "second", wait=0) as turn:
        turn.add_assistant("2")
    assert contents(store, turn.session) == ["first", "1", "second", "2"]


def test_waiting_duplicate_of_an_ended_session_blocks_nobody(store: Store, apart: Store) -> None:
    with store.turn_control(ANA, "first", message_id="1") as turn:
        again = apart.turn_control(ANA, "first", message_id="1")
        assert not again.try_enter()
        apart.sessions.reset(turn.session.key)
        assert not again.try_enter()
        with apart.turn_control(ANA, "second", wait=0) as following:
            following.add_assistant("2")
        turn.add_assistant("1")
    assert again.try_enter()
    assert (again.duplicate, again.answer) == (True, "1")


def test_resumed_turn_is_waited_for_as_well(store: Store, apart: Store) -> None:
    cut_off = store.turn_control(ANA, "first", message_id="1")
    assert cut_off.try_enter()
    cut_off.leave(failed=True)
    with store.turn_control(ANA, "first", message_id="1") as turn:
        assert not turn.duplicate
        apart.sessions.reset(turn.session.key)
        with pytest.raises(SessionBusy), apart.turn_control(ANA, "first", message_id="1", wait=0):
            pass
        turn.add_assistant("1")
    with apart.turn_control(ANA, "first", message_id="1", wait=0) as again:
        assert (again.duplicate, again.answer) == (True, "1")


def test_open_turn_of_an_ended_session_is_closed_by_the_next_turn(
    store: Store, apart: Store
) -> None:
    lost = store.turn_control(ANA, "look", message_id="1")
    assert lost.try_enter()
    lost.add_assistant(None, tool_calls=[call()])
    let_lease_run_out(store, lost.session)
    apart.sessions.reset(lost.session.key)
    with apart.turn_control(ANA, "hello", wait=0) as turn:
        turn.add_assistant("hi")
    apart.sessions.switch(lost.session.key, lost.session.id)
    with apart.turn_control(ANA, "and?", wait=0) as turn:
        assert turn.session.id == lost.session.id
        turn.add_assistant("Sorry.")
    with pytest.raises(LeaseLost):
        lost.add_tool_result("c1", "blue")
    lost.leave(failed=True)
    assert unanswered(log_of(store, lost.session)) == []
    assert turn_states(store) == ["interrupted", "answered", "answered"]


WRITES: dict[str, Callable[[TurnControl], object]] = {
    "answer": lambda turn: turn.add_assistant("hi"),
    "part": lambda turn: turn.add_assistant("hi", more=True),
    "calls": lambda turn: turn.add_assistant(None, tool_calls=[call("c2")]),
    "result": lambda turn: turn.add_tool_result("c1", "blue"),
    "usage": lambda turn: turn.add_usage(Usage(1)),
    "delivery": lambda turn: turn.deliver("hi"),
    "leaving": lambda turn: turn.leave(),
}


# A turn that has been answered has no results left to store, and nothing to close.
AFTER_THE_ANSWER = [name for name in WRITES if name not in ("result", "leaving")]


@pytest.mark.parametrize(
    ("write", "is_answered"),
    [*((name, False) for name in WRITES), *((name, True) for name in AFTER_THE_ANSWER)],
)
def test_nothing_is_stored_in_a_deleted_session(
    store: Store, apart: Store, write: str, is_answered: bool
) -> None:
    turn = store.turn_control(ANA, "look")
    assert turn.try_enter()
    turn.add_assistant(None, tool_calls=[call()])
    if is_answered:
        turn.add_assistant("Blue.")
    apart.sessions.delete(turn.session.id)
    with pytest.raises(NotFound):
        WRITES[write](turn)
    turn.leave(failed=True)
    assert store.sessions.count() == 0
    assert store.outbox.find().items == ()
    assert ask(store, "select count(*) from messages") == 0
    assert ask(store, "select count(*) from turns") == 0


@pytest.mark.parametrize("write", WRITES)
def test_turn_of_a_deleted_session_cannot_write_into_its_successor(
    store: Store, apart: Store, write: str
) -> None:
    """SQLite gives the number of a row that was deleted to the next one."""
    turn = store.turn_control(ANA, "look")
    assert turn.try_enter()
    turn.add_assistant(None, tool_calls=[call()])
    apart.sessions.delete(turn.session.id)
    with apart.turn_control(BEN, "a secret") as secret:
        number = ask(store, "select ref from sessions where id = ?", secret.session.id)
        assert turn._turn is not None
        assert secret._turn is not None
        assert secret._turn.epoch == turn._turn.epoch
        if isinstance(store.context.db, SqliteDatabase):
            assert number == turn._turn.ref
        assert not turn.renew()
        with pytest.raises(NotFound):
            WRITES[write](turn)
        turn.leave(failed=True)
        assert contents(store, secret.session) == ["a secret"]
        secret.add_assistant("kept")
    assert contents(store, secret.session) == ["a secret", "kept"]
    assert store.sessions.require(secret.session.id).usage.total == 0
    assert store.outbox.find().items == ()


def test_turn_in_a_deleted_session_blocks_nobody(store: Store, other: Store) -> None:
    """In one process, where turns hold each other back until they leave their block."""
    turn = store.turn_control(ANA, "look")
    assert turn.try_enter()
    other.sessions.delete(turn.session.id)
    for source in (BEN, ANA):
        with other.turn_control(source, "hello", wait=0) as following:
            following.add_assistant("hi")
    turn.leave(failed=True)


CHANGES: dict[str, Callable[[Store, TurnControl], object]] = {
    "undo": lambda store, turn: store.transcript(turn.session.id).undo(),
    "clear": lambda store, turn: store.transcript(turn.session.id).clear(),
    "rewrite": lambda store, turn: store.transcript(turn.session.id).rewrite([]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_undo_hides_earlier_messages_of_a_running_turn_only(
    store: Store, apart: Store, change: str
) -> None:
    with store.turn_control(ANA, "one") as turn:
        turn.add_assistant("1")
    with store.turn_control(ANA, "two") as turn:
        turn.add_assistant(None, tool_calls=[call()])
        CHANGES[change](apart, turn)
        kept = ["one", "1"] if change == "undo" else []
        assert [row["content"] for row in store.transcript(turn.session.id).load()] == kept
        turn.add_tool_result("c1", "blue")
        assert faults_of(turn.history()) == []
        turn.add_assistant("2")
    assert contents(store, turn.session) == ["one", "1", "two", None, "blue", "2"]
    seen = [row["content"] for row in store.transcript(turn.session.id).load()]
    assert seen == [*kept, "blue", "2"]
    with apart.turn_control(ANA, "three", wait=0) as turn:
        assert turn.history()[-1]["content"] == "three"
        turn.add_assistant("3")


def test_undo_of_a_running_turn_can_be_redone(store: Store, apart: Store) -> None:
    with store.turn_control(ANA, "one") as turn:
        apart.transcript(turn.session.id).undo()
        turn.add_assistant("1")
    transcript = store.transcript(turn.session.id)
    assert transcript.undo() == 1
    assert transcript.load() == []
    transcript.restore(1)
    assert [row["content"] for row in transcript.load()] == ["one"]


def test_exception_is_raised_even_if_the_session_was_deleted(store: Store) -> None:
    with pytest.raises(Error) as caught, store.turn_control(ANA, "one") as turn:
        _delete_and_answer(store, turn)
    assert isinstance(caught.value, NotFound)


def _delete_and_answer(store: Store, turn: TurnControl) -> None:
    store.sessions.delete(turn.session.id)
    turn.add_assistant("1")
