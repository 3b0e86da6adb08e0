"""Entering a turn: a new message, a duplicate, an interrupted turn that is resumed."""

from __future__ import annotations

import pytest

from tertulia import IllegalMove, SessionBusy, Source, Store, Turn, Usage
from tertulia.core.history.repair import INTERRUPTED_RESULT
from tertulia.records.turns.control import TurnControl
from tertulia.testing import FakeClock, Handles
from tests.records.store_inspection import (
    ANA,
    BEN,
    call,
    contents,
    let_lease_run_out,
    log_of,
    open_beside,
    turn_states,
)
from tests.records.turns.exchanges import cut_off, exchange

GROUP = Source("telegram", "-100", chat_type="group", user_id="42", user_name="Ana")


def test_user_message_is_stored_before_the_agent_works(store: Store, other: Store) -> None:
    with store.turn(ANA, "hello", message_id="1") as turn:
        seen = other.transcript(turn.session.id).load()
        assert seen == [{"role": "user", "content": "hello", "message_id": "1"}]
        current = other.sessions.current(turn.session.key)
        assert current is not None
        assert current.id == turn.session.id
        assert turn.history() == [{"role": "user", "content": "hello"}]


def test_turn_stores_user_message_and_answer(store: Store, other: Store) -> None:
    turn = exchange(store, "hello", "good day")
    assert (turn.duplicate, turn.answer, turn.notice) == (False, "good day", None)
    assert contents(other, turn.session) == ["hello", "good day"]
    assert turn_states(other) == ["answered"]


def test_turns_of_a_conversation_follow_each_other(store: Store) -> None:
    first = exchange(store, "one", "1")
    with store.turn(ANA, "two") as second:
        assert [message["content"] for message in second.history()] == ["one", "1", "two"]
    assert second.session.id == first.session.id
    assert exchange(store, "hi", "1", source=BEN).session.id != first.session.id


def test_the_session_of_a_turn_is_the_one_it_has_touched(store: Store, clock: FakeClock) -> None:
    exchange(store, "one", "1")
    clock.forward(minutes=5)
    with store.turn(ANA, "two") as turn:
        assert turn.session.updated_at == clock.now()
        changed = store.sessions.set_metadata(
            turn.session.id, {"mood": "good"}, version=turn.session.version
        )
        assert changed.version == turn.session.version + 1


def test_turn_that_was_not_entered_stores_nothing(store: Store) -> None:
    turn = store.turn_control(ANA, "hello")
    for use in (
        lambda: turn.session,
        turn.history,
        lambda: turn.context_prompt,
        lambda: turn.add_assistant("hi"),
        lambda: turn.add_usage(Usage(1)),
        lambda: turn.deliver("hi"),
    ):
        with pytest.raises(IllegalMove, match="has not begun"):
            use()
    assert store.sessions.count() == 0
    turn.leave()


@pytest.mark.parametrize("message_id", [None, "1"])
def test_a_turn_is_entered_once(store: Store, message_id: str | None) -> None:
    turn = exchange(store, "hello", "hi", message_id=message_id)
    with pytest.raises(IllegalMove, match="entered before"), turn:
        pass
    assert contents(store, turn.session) == ["hello", "hi"]


def test_entering_a_second_time_does_not_disturb_the_turn(store: Store) -> None:
    with store.turn(ANA, "hello") as turn:
        with pytest.raises(IllegalMove, match="entered before"), turn:
            pass
        turn.add_assistant("hi")
    assert turn_states(store) == ["answered"]


def test_turn_may_begin_without_a_message(store: Store) -> None:
    with store.turn(ANA) as turn:
        turn.add_assistant("You did not ask, but it rains.")
    assert contents(store, turn.session) == ["You did not ask, but it rains."]


def test_media_are_stored_with_the_message(store: Store) -> None:
    picture = {"type": "image", "path": "cat.png"}
    with store.turn(ANA, "look", media=[picture]) as turn:
        assert "cat.png" in turn.history()[0]["content"]
    with store.turn(ANA, media=(picture, "dog.png")) as turn:
        pass
    bodies = [row.body for row in log_of(store, turn.session)]
    assert [(body["content"], body["media"]) for body in bodies] == [
        ("look", [picture]),
        ("", [picture, "dog.png"]),
    ]


def test_media_that_cannot_be_stored_begin_no_turn(store: Store) -> None:
    with pytest.raises(IllegalMove), store.turn(ANA, "look", media=[object()]):
        pass
    assert not store.sessions.has_any()
    exchange(store, "look", "I see")


def test_first_turn_after_an_automatic_end_has_the_notice(store: Store, clock: FakeClock) -> None:
    before = exchange(store, "hello", "hi")
    clock.forward(days=2)
    after = exchange(store, "again", "yes?")
    assert after.notice is not None
    assert after.notice == after.session.notice
    assert (after.notice.had_activity, after.notice.session_id) == (True, before.session.id)
    assert after.session.id != before.session.id
    assert exchange(store, "so", "what?").notice is None


def test_the_context_prompt_stays_the_same_to_the_byte(
    handles: Handles, store: Store, other: Store, clock: FakeClock
) -> None:
    prompts = set()
    for number, handle in enumerate((store, other, handles.open())):
        clock.forward(minutes=7)
        with handle.turn(ANA, f"message {number}", message_id=number) as turn:
            prompts.add(turn.context_prompt)
            turn.add_assistant("fine", usage=Usage(100, 10))
    assert len(prompts) == 1
    assert prompts.pop().startswith("## Current Session Context")


def test_author_is_stored_with_a_message_in_a_shared_chat(handles: Handles) -> None:
    store = handles.open(group_sessions_per_user=False)
    with store.turn(GROUP, "good morning") as turn:
        assert turn.history()[0]["content"] == '[From: "Ana", id "42"]\ngood morning'


@pytest.mark.parametrize(("first", "again"), [("981", "981"), (981, "981"), ("981", 981)])
def test_a_message_has_one_turn(
    store: Store, other: Store, first: str | int, again: str | int
) -> None:
    done = exchange(store, "hello", "hi there", message_id=first)
    version = store.sessions.require(done.session.id).version
    for handle in (store, other):
        with handle.turn(ANA, "hello", message_id=again, wait=0) as turn:
            assert (turn.duplicate, turn.answer) == (True, "hi there")
            assert turn.session.id == done.session.id
            assert turn.history()[-1]["content"] == "hi there"
    assert contents(store, done.session) == ["hello", "hi there"]
    assert store.sessions.require(done.session.id).version == version


def test_a_duplicate_writes_nothing(store: Store) -> None:
    exchange(store, "hello", "hi", message_id="1")
    with store.turn(ANA, "hello", message_id="1") as turn:
        for write in (
            lambda: turn.add_assistant("hi again"),
            lambda: turn.add_usage(Usage(1)),
            lambda: turn.deliver("hi again"),
        ):
            with pytest.raises(IllegalMove, match="has had its turn"):
                write()
    assert contents(store, turn.session) == ["hello", "hi"]


@pytest.mark.parametrize(
    "elsewhere",
    [
        Source("telegram", "43", user_id="42"),
        Source("telegram", "42", user_id="42", account="second bot"),
        Source("discord", "42", user_id="42"),
    ],
    ids=["chat", "account", "platform"],
)
def test_equal_id_in_another_chat_is_another_message(store: Store, elsewhere: Source) -> None:
    exchange(store, "here", "1", message_id="981")
    turn = exchange(store, "there", "2", message_id="981", source=elsewhere)
    assert not turn.duplicate
    assert contents(store, turn.session) == ["there", "2"]
    with store.turn(elsewhere, "there", message_id="981") as again:
        assert again.answer == "2"


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (("a:b", "c"), ("a", "b:c")),
        (("a", "b"), ("a%3Ab", "")),
        (("a ", "b"), ("a", " b")),
        (("\ud800", "b"), ("\udfff", "b")),
    ],
)
def test_different_messages_are_never_taken_for_duplicates(
    store: Store, one: tuple[str, str], two: tuple[str, str]
) -> None:
    for chat, message_id in (one, two):
        turn = exchange(store, "x", "y", source=Source("signal", chat), message_id=message_id)
        assert not turn.duplicate


@pytest.mark.parametrize("message_id", [None, ""])
def test_a_message_without_an_id_is_always_new(store: Store, message_id: str | None) -> None:
    exchange(store, "hello", "1", message_id=message_id)
    turn = exchange(store, "hello", "2", message_id=message_id)
    assert not turn.duplicate
    assert contents(store, turn.session) == ["hello", "1", "hello", "2"]


@pytest.mark.parametrize("answer", ["", None, "half a pair: \ud800", "nul: \x00", "x" * 100_000])
def test_duplicate_message_returns_stored_answer(store: Store, answer: str | None) -> None:
    with store.turn(ANA, "hello", message_id="1") as turn:
        turn.add_assistant(answer)
        assert turn.answer == answer
    with store.turn(ANA, "hello", message_id="1") as turn:
        assert (turn.duplicate, turn.answer) == (True, answer)


def test_duplicate_is_recognised_after_its_session_has_ended(
    store: Store, clock: FakeClock
) -> None:
    done = exchange(store, "hello", "hi", message_id="1")
    clock.forward(days=3)
    with store.turn(ANA, "hello", message_id="1") as turn:
        assert (turn.duplicate, turn.answer) == (True, "hi")
        assert turn.session.id == done.session.id
    store.sessions.reset(done.session.key)
    with store.turn(ANA, "hello", message_id="1") as turn:
        assert (turn.duplicate, turn.answer) == (True, "hi")
    assert store.sessions.count() == 2


def test_deleting_a_session_forgets_its_message_ids(store: Store) -> None:
    done = exchange(store, "hello", "hi", message_id="1")
    store.sessions.delete(done.session.id)
    assert not exchange(store, "hello", "hi", message_id="1").duplicate


def test_interrupted_turn_is_resumed(store: Store, other: Store) -> None:
    first = cut_off(
        store,
        "delete it",
        lambda turn: turn.add_assistant("Yes.", tool_calls=[call("c1")]),
        message_id="1",
    )
    with other.turn(ANA, "delete it", message_id="1") as turn:
        assert not turn.duplicate
        assert turn.session.id == first.session.id
        assert turn.history()[-1]["content"] == INTERRUPTED_RESULT
        with pytest.raises(IllegalMove, match="no call"):
            turn.add_tool_result("c1", "deleted after all")
        turn.add_assistant("I do not know whether it is deleted.")
    assert turn_states(store) == ["answered"]
    assert [row.turn for row in log_of(store, turn.session)] == [1] * 4
    with store.turn(ANA, "delete it", message_id="1") as again:
        assert (again.duplicate, again.answer) == (True, "I do not know whether it is deleted.")


def test_interrupted_turn_that_is_not_the_newest_is_not_resumed(store: Store) -> None:
    cut_off(store, "first", message_id="1")
    exchange(store, "second", "2")
    before = log_of(store, exchange(store, "third", "3").session)
    with store.turn_control(ANA, "first", message_id="1", wait=0) as turn:
        assert (turn.duplicate, turn.answer, turn.is_interrupted) == (True, None, True)
    assert log_of(store, turn.session) == before


def test_interrupted_turn_of_a_reset_session_is_not_resumed(store: Store) -> None:
    turn = cut_off(store, "first", message_id="1")
    fresh = store.sessions.reset(turn.session.key)
    assert fresh is not None
    with store.turn_control(ANA, "first", message_id="1", wait=0) as again:
        assert (again.duplicate, again.answer, again.is_interrupted) == (True, None, True)
    assert contents(store, fresh) == []


def test_interrupted_turn_that_was_undone_is_not_resumed(store: Store) -> None:
    exchange(store, "zero", "0")
    turn = cut_off(store, "first", message_id="1")
    store.transcript(turn.session.id).undo()
    before = log_of(store, turn.session)
    with store.turn(ANA, "first", message_id="1", wait=0) as again:
        assert (again.duplicate, again.answer) == (True, None)
    assert log_of(store, turn.session) == before
    store.transcript(turn.session.id).redo()
    assert exchange(store, "first", "1", message_id="1").duplicate is False


def test_interrupted_turn_without_a_message_is_resumed(store: Store) -> None:
    turn = store.turn_control(ANA, message_id="1")
    assert turn.try_enter()
    turn.leave(failed=True)
    with store.turn_control(ANA, message_id="1") as turn:
        assert not turn.duplicate
        turn.add_assistant("What was that?")
    with store.turn_control(ANA, message_id="1") as turn:
        assert turn.answer == "What was that?"


def test_resuming_is_no_activity(store: Store, clock: FakeClock) -> None:
    said_at = clock.now()
    cut_off(store, "first", message_id="1")
    clock.forward(hours=3)
    turn = exchange(store, "first", "1", message_id="1")
    assert turn.session.updated_at == said_at
    assert store.sessions.require(turn.session.id).updated_at == said_at


def test_resuming_applies_the_policy(store: Store, clock: FakeClock) -> None:
    first = cut_off(store, "first", message_id="1")
    clock.forward(days=2)
    turn = exchange(store, "first", "1", message_id="1")
    assert not turn.duplicate
    assert turn.session.id != first.session.id
    assert turn.notice is not None
    assert store.sessions.require(first.session.id).end_reason == turn.notice.reason
    assert contents(store, turn.session) == ["first", "1"]
    with store.turn(ANA, "first", message_id="1") as again:
        assert (again.duplicate, again.answer) == (True, "1")


@pytest.mark.parametrize("is_closed", [True, False], ids=["left", "open"])
@pytest.mark.parametrize("is_begun", [True, False], ids=["begun", "not begun"])
def test_interrupted_turn_is_resumed_after_a_policy_ended_its_session(
    handles: Handles, store: Store, is_closed: bool, is_begun: bool
) -> None:
    """Also where somebody else had the policy asked, and the next session has its own talk."""
    lost = open_beside(handles)
    first: Turn | TurnControl
    if is_closed:
        first = cut_off(lost, "first", message_id="1")
    else:
        first = lost.turn_control(ANA, "first", message_id="1")
        assert first.try_enter()
        let_lease_run_out(store, first.session)
    handles.clock.forward(days=2)
    assert store.sessions.expire(first.session.id) is not None
    if is_begun:
        exchange(store, "good morning", "hello")
    turn = exchange(store, "first", "1", message_id="1")
    assert not turn.duplicate
    assert turn.session.id != first.session.id
    assert contents(store, turn.session)[-2:] == ["first", "1"]
    with store.turn_control(ANA, "first", message_id="1") as again:
        assert (again.duplicate, again.answer, again.is_interrupted) == (True, "1", False)
    lost.close()


def test_policy_begins_no_second_turn_beside_a_running_one(handles: Handles, store: Store) -> None:
    apart = open_beside(handles)
    with store.turn(ANA, "a long story") as turn:
        handles.clock.forward(days=2)
        with pytest.raises(SessionBusy), apart.turn(ANA, "well?", wait=0):
            pass
        assert store.sessions.require(turn.session.id).ended_at is None
        turn.add_assistant("The end.")
    after = exchange(apart, "well?", "Well.", wait=0)
    assert after.session.id != turn.session.id
    assert after.notice is not None
    apart.close()
