"""What `store.turn` promises to one caller: entering, writing, answering, leaving."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tertulia import (
    ConfigError,
    HomeChannel,
    IllegalMove,
    LeaseLost,
    SessionBusy,
    Source,
    Store,
    StoreError,
    ToolCall,
    Turn,
    Usage,
)
from tertulia.core.history.repair import INTERRUPTED_RESULT
from tertulia.records.turns import turn as turn_module
from tertulia.testing import FakeClock, Handles
from tertulia.testing.fault_points import watch
from tertulia.testing.fixtures import (
    at_once,
    outcomes,
    until,
)
from tests.turns.scene import (
    ANA,
    BEN,
    PATIENCE,
    ask,
    call,
    contents,
    execute,
    faults_of,
    interrupted,
    let_lease_run_out,
    log_of,
    open_beside,
    tickets,
    turn_states,
    unanswered,
)

GROUP = Source("telegram", "-100", chat_type="group", user_id="42", user_name="Ana")


class Broken(Exception):
    """What an agent raises here, and nothing else does."""


def exchange(store: Store, text: str, answer: str, *, source: Source = ANA, **options: Any) -> Turn:
    """A whole turn without tools."""
    with store.turn(source, text, **options) as turn:
        turn.add_assistant(answer)
    return turn


def cut_off(store: Store, text: str, *steps: Callable[[Turn], object], **options: Any) -> Turn:
    """A turn whose agent fails after some steps."""
    turn = store.turn(ANA, text, **options)
    with contextlib.suppress(Broken), turn:
        for step in steps:
            step(turn)
        raise Broken
    return turn


# -- entering


def test_what_the_person_said_is_stored_before_the_agent_works(store: Store, other: Store) -> None:
    with store.turn(ANA, "hello", message_id="1") as turn:
        seen = other.transcript(turn.session.id).load()
        assert seen == [{"role": "user", "content": "hello", "message_id": "1"}]
        current = other.sessions.current(turn.session.key)
        assert current is not None
        assert current.id == turn.session.id
        assert turn.history() == [{"role": "user", "content": "hello"}]


def test_a_turn_is_what_the_person_said_and_what_was_answered(store: Store, other: Store) -> None:
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


def test_a_turn_that_was_not_entered_has_and_stores_nothing(store: Store) -> None:
    turn = store.turn(ANA, "hello")
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


def test_a_turn_may_come_without_a_message(store: Store) -> None:
    with store.turn(ANA) as turn:
        turn.add_assistant("You did not ask, but it rains.")
    assert contents(store, turn.session) == ["You did not ask, but it rains."]


def test_media_come_with_the_message(store: Store) -> None:
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


def test_media_that_cannot_be_stored_begin_nothing(store: Store) -> None:
    with pytest.raises(IllegalMove), store.turn(ANA, "look", media=[object()]):
        pass
    assert not store.sessions.has_any()
    exchange(store, "look", "I see")


def test_the_notice_comes_with_the_first_turn_after_an_automatic_end(
    store: Store, clock: FakeClock
) -> None:
    before = exchange(store, "hello", "hi")
    clock.forward(days=2)
    after = exchange(store, "again", "yes?")
    assert after.notice is not None
    assert after.notice == after.session.notice
    assert (after.notice.had_activity, after.notice.session_id) == (True, before.session.id)
    assert after.session.id != before.session.id
    assert exchange(store, "so", "what?").notice is None


def test_the_context_prompt_stays_the_same_to_the_byte(
    stage: Handles, store: Store, other: Store, clock: FakeClock
) -> None:
    prompts = set()
    for number, handle in enumerate((store, other, stage.open())):
        clock.forward(minutes=7)
        with handle.turn(ANA, f"message {number}", message_id=number) as turn:
            prompts.add(turn.context_prompt)
            turn.add_assistant("fine", usage=Usage(100, 10))
    assert len(prompts) == 1
    assert prompts.pop().startswith("## Current Session Context")


def test_in_a_shared_chat_the_author_stands_with_the_message(stage: Handles) -> None:
    store = stage.open(group_sessions_per_user=False)
    with store.turn(GROUP, "good morning") as turn:
        assert turn.history()[0]["content"] == '[From: "Ana", id "42"]\ngood morning'


# -- the same message again


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
def test_an_equal_id_elsewhere_is_another_message(store: Store, elsewhere: Source) -> None:
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
def test_no_two_messages_are_taken_for_one(
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
def test_the_answer_is_given_again_as_it_was(store: Store, answer: str | None) -> None:
    with store.turn(ANA, "hello", message_id="1") as turn:
        turn.add_assistant(answer)
        assert turn.answer == answer
    with store.turn(ANA, "hello", message_id="1") as turn:
        assert (turn.duplicate, turn.answer) == (True, answer)


def test_a_message_is_known_after_its_session_has_ended(store: Store, clock: FakeClock) -> None:
    done = exchange(store, "hello", "hi", message_id="1")
    clock.forward(days=3)
    with store.turn(ANA, "hello", message_id="1") as turn:
        assert (turn.duplicate, turn.answer) == (True, "hi")
        assert turn.session.id == done.session.id
    store.sessions.reset(done.session.key)
    with store.turn(ANA, "hello", message_id="1") as turn:
        assert (turn.duplicate, turn.answer) == (True, "hi")
    assert store.sessions.count() == 2


def test_with_its_session_a_message_is_forgotten(store: Store) -> None:
    done = exchange(store, "hello", "hi", message_id="1")
    store.sessions.delete(done.session.id)
    assert not exchange(store, "hello", "hi", message_id="1").duplicate


# -- steps


def test_calls_and_results_are_stored_in_the_openai_form(store: Store) -> None:
    as_dict = {"id": "c2", "type": "function", "function": {"name": "go", "arguments": "{}"}}
    with store.turn(ANA, "look and go") as turn:
        turn.add_assistant("One moment.", tool_calls=[call("c1"), as_dict], reasoning="hm")
        turn.add_tool_result("c2", "gone")
        turn.add_tool_result("c1", "blue", name="look")
        turn.add_assistant("Done.")
    look = {"name": "look", "arguments": '{"at":"sky"}'}
    assert [row.body for row in log_of(store, turn.session)][1:] == [
        {
            "role": "assistant",
            "content": "One moment.",
            "tool_calls": [{"id": "c1", "type": "function", "function": look}, as_dict],
            "reasoning_content": "hm",
        },
        {"role": "tool", "tool_call_id": "c2", "content": "gone"},
        {"role": "tool", "tool_call_id": "c1", "content": "blue", "name": "look"},
        {"role": "assistant", "content": "Done."},
    ]
    history = turn.history()
    assert faults_of(history) == []
    assert [message["content"] for message in history if message["role"] == "tool"] == [
        "blue",
        "gone",
    ]


@pytest.mark.parametrize(
    ("content", "stored"),
    [
        ("text", "text"),
        ("", ""),
        ([{"type": "text", "text": "a"}], [{"type": "text", "text": "a"}]),
        ({"sky": "blue"}, '{"sky":"blue"}'),
        ([1, 2], "[1,2]"),
        ([], "[]"),
        (None, "null"),
        (3.5, "3.5"),
    ],
)
def test_a_result_is_anything_that_json_has(store: Store, content: Any, stored: Any) -> None:
    with store.turn(ANA, "look") as turn:
        turn.add_assistant(None, tool_calls=[call()])
        turn.add_tool_result("c1", content)
        turn.add_assistant("Blue.")
    assert contents(store, turn.session)[2] == stored


def test_a_result_for_no_call_or_a_second_one_is_refused(store: Store) -> None:
    with store.turn(ANA, "look") as turn:
        with pytest.raises(IllegalMove, match="no call 'c1'"):
            turn.add_tool_result("c1", "too soon")
        turn.add_assistant(None, tool_calls=[call("c1"), call("c2")])
        turn.add_tool_result("c1", "blue")
        with pytest.raises(IllegalMove, match="already"):
            turn.add_tool_result("c1", "grey")
        with pytest.raises(IllegalMove, match="no call 'c3'") as caught:
            turn.add_tool_result("c3", "what?")
        assert caught.value.hint is not None
        assert "c1, c2" in caught.value.hint
        assert contents(store, turn.session) == ["look", None, "blue"]
        turn.add_tool_result("c2", "cold")
        turn.add_assistant("Blue and cold.")
    with store.turn(ANA, "and now?") as turn, pytest.raises(IllegalMove, match="no call"):
        turn.add_tool_result("c2", "a call of the turn before")


def test_a_provider_may_use_its_ids_again(store: Store) -> None:
    with store.turn(ANA, "look thrice") as turn:
        for number in range(3):
            turn.add_assistant(None, tool_calls=[call("call_0"), call("call_1")])
            turn.add_tool_result("call_1", f"{number} right")
            turn.add_tool_result("call_0", f"{number} left")
            with pytest.raises(IllegalMove, match="already"):
                turn.add_tool_result("call_0", "once more")
        turn.add_assistant("Seen.")
    history = turn.history()
    assert faults_of(history) == []
    found = [message["content"] for message in history if message["role"] == "tool"]
    assert found == [f"{number} {side}" for number in range(3) for side in ("left", "right")]


def test_an_id_that_is_used_again_before_its_result_came(store: Store) -> None:
    with store.turn(ANA, "look") as turn:
        turn.add_assistant(None, tool_calls=[call("call_0")])
        turn.add_assistant(None, tool_calls=[call("call_0")])
        turn.add_tool_result("call_0", "of the second")
        with pytest.raises(IllegalMove, match="already"):
            turn.add_tool_result("call_0", "of the first")
        turn.add_assistant("Seen.")
    history = turn.history()
    assert faults_of(history) == []
    found = [message["content"] for message in history if message["role"] == "tool"]
    assert found == [INTERRUPTED_RESULT, "of the second"]


def test_one_id_for_two_calls_at_once_takes_two_results(store: Store) -> None:
    with store.turn(ANA, "look twice") as turn:
        turn.add_assistant(None, tool_calls=[call("same"), call("same")])
        turn.add_tool_result("same", "left")
        turn.add_tool_result("same", "right")
        with pytest.raises(IllegalMove, match="already"):
            turn.add_tool_result("same", "behind")
        turn.add_assistant("Seen.")
    assert contents(store, turn.session) == ["look twice", None, "left", "right", "Seen."]
    history = turn.history()
    assert faults_of(history) == []
    assert [message["content"] for message in history[2:]] == ["left", "right", "Seen."]


def test_a_late_result_goes_to_its_call(store: Store) -> None:
    with store.turn(ANA, "look") as turn:
        turn.add_assistant(None, tool_calls=[call("slow"), call("quick")])
        turn.add_tool_result("quick", "1")
        turn.add_assistant(None, tool_calls=[call("next")])
        turn.add_tool_result("slow", "2")
        turn.add_tool_result("next", "3")
        turn.add_assistant("Seen.")
    history = turn.history()
    assert faults_of(history) == []
    assert [message["content"] for message in history if message["role"] == "tool"] == list("213")


def test_threads_that_answer_one_call_at_once_store_one_result(store: Store) -> None:
    with store.turn(ANA, "look") as turn:
        for number in range(20):
            turn.add_assistant(None, tool_calls=[call(f"c{number}")])
            works = [
                lambda name=f"c{number}", word=word: turn.add_tool_result(name, word)
                for word in "abcd"
            ]
            stored, refused = outcomes(*works, refusals=IllegalMove)
            assert (len(stored), len(refused)) == (1, 3)
        turn.add_assistant("Seen.")
    assert sum(row.role == "tool" for row in log_of(store, turn.session)) == 20


def test_threads_may_bring_the_results_of_one_step(store: Store) -> None:
    ids = [f"c{number}" for number in range(8)]
    with store.turn(ANA, "look around") as turn:
        turn.add_assistant(None, tool_calls=[call(name) for name in ids])
        at_once(*(lambda name=name: turn.add_tool_result(name, name) for name in ids))
        turn.add_assistant("Seen.")
    results = [message["content"] for message in turn.history() if message["role"] == "tool"]
    assert results == ids


def test_a_result_that_could_not_be_stored_can_be_given_again(store: Store) -> None:
    def fail(number: int, moment: str) -> None:
        if moment == "before" and fails:
            raise StoreError("The disk is gone.")

    with store.turn(ANA, "look") as turn:
        turn.add_assistant(None, tool_calls=[call()])
        with pytest.raises(IllegalMove, match="JSON"):
            turn.add_tool_result("c1", object())
        fails = True
        watch(store, fail)
        with pytest.raises(StoreError, match="disk"):
            turn.add_tool_result("c1", "blue")
        fails = False
        assert contents(store, turn.session) == ["look", None]
        turn.add_tool_result("c1", "blue")
        turn.add_assistant("Blue.")
    assert contents(store, turn.session) == ["look", None, "blue", "Blue."]


@pytest.mark.parametrize("bad", [{"function": {"name": "look"}}, {"id": ""}, {"id": 7}])
def test_a_call_without_an_id_is_refused(store: Store, bad: dict[str, Any]) -> None:
    with store.turn(ANA, "look") as turn:
        with pytest.raises(IllegalMove, match="id"):
            turn.add_assistant("One moment.", tool_calls=[call(), bad])
        assert contents(store, turn.session) == ["look"]
        turn.add_assistant("I cannot look.")


def test_arguments_are_text_or_a_dict(store: Store) -> None:
    calls = [ToolCall("a", "f"), ToolCall("b", "f", '{"x": 1}'), ToolCall("c", "f", {"x": [1]})]
    with store.turn(ANA, "go") as turn:
        turn.add_assistant(None, tool_calls=calls)
        stored = log_of(store, turn.session)[1].body["tool_calls"]
        assert [item["function"]["arguments"] for item in stored] == ["{}", '{"x": 1}', '{"x":[1]}']
        turn.add_assistant("Gone.")


def test_other_fields_are_kept_and_replace_none(store: Store) -> None:
    with store.turn(ANA, "hello") as turn:
        turn.add_assistant("hi", role="user", content="forged", thinking_blocks=[{"thinking": "?"}])
    assert log_of(store, turn.session)[1].body == {
        "role": "assistant",
        "content": "hi",
        "thinking_blocks": [{"thinking": "?"}],
    }


# -- usage


def test_usage_is_stored_with_what_it_was_used_for(store: Store, other: Store) -> None:
    with store.turn(ANA, "hello") as turn:
        turn.add_usage(Usage(10, 1, model="small"))
        turn.add_assistant(None, tool_calls=[call()], usage=Usage(20, 2, cost_usd=0.25))
        assert other.sessions.require(turn.session.id).usage.input == 30
        turn.add_tool_result("c1", "blue")
        turn.add_assistant("hi", usage=Usage(40, 4, cost_usd=0.5, last_prompt=44))
    session = other.sessions.require(turn.session.id)
    assert (session.usage.input, session.usage.output) == (70, 7)
    assert (session.cost_usd, session.last_prompt_tokens) == (0.75, 44)
    rows = execute(store, "select session_id, turn, input from usage order by id")
    assert rows == [(session.id, 1, 10), (session.id, 1, 20), (session.id, 1, 40)]


def test_in_a_shared_chat_usage_is_that_of_who_wrote(stage: Handles) -> None:
    store = stage.open(group_sessions_per_user=False)
    for user, tokens in (("42", 5), ("43", 7), ("42", 11)):
        source = Source("telegram", "-100", chat_type="group", user_id=user)
        with store.turn(source, "hi") as turn:
            turn.add_assistant("hello", usage=Usage(tokens))
    sums = store.usage.sum(by="person")
    assert {name: usage.input for name, usage in sums.items()} == {
        "telegram:42": 16,
        "telegram:43": 7,
    }


# -- deliveries


def test_a_delivery_lies_in_the_outbox_when_it_returns(store: Store, other: Store) -> None:
    ana = Source("telegram", "42", user_id="42", account="bot", thread_id="7")
    with store.turn(ana, "hello") as turn:
        key = turn.deliver("on its way")
        (parcel,) = other.outbox.find().items
        turn.add_assistant("hi")
    assert (parcel.delivery, parcel.session_id, parcel.state) == (key, turn.session.id, "waiting")
    assert (parcel.target, parcel.platform, parcel.account) == ("origin", "telegram", "bot")
    assert (parcel.chat_id, parcel.thread_id) == ("42", "7")
    assert parcel.body == {"text": "on its way"}


@pytest.mark.parametrize(
    ("to", "place"),
    [
        ("origin", ("telegram", "42", None)),
        ("local", ("local", None, None)),
        ("discord", ("discord", "home", None)),
        ("slack:C1:99", ("slack", "C1", "99")),
    ],
)
def test_a_target_is_resolved(
    stage: Handles, to: str, place: tuple[str, str | None, str | None]
) -> None:
    store = stage.open(homes={"discord": HomeChannel("home")})
    with store.turn(ANA, "hello") as turn:
        turn.deliver("there you are", to)
    (parcel,) = store.outbox.find().items
    assert (parcel.platform, parcel.chat_id, parcel.thread_id) == place


@pytest.mark.parametrize("to", ["nowhere", "discord", "slack:"])
def test_a_target_that_does_not_exist_is_refused(store: Store, to: str) -> None:
    with store.turn(ANA, "hello") as turn:
        with pytest.raises(ConfigError):
            turn.deliver("lost", to)
        with pytest.raises(ConfigError):
            turn.add_assistant("lost", deliver=to)
        assert contents(store, turn.session) == ["hello"]
    assert store.outbox.find().items == ()


def test_two_deliveries_have_two_keys_unless_one_is_given(store: Store) -> None:
    with store.turn(ANA, "hello") as turn:
        assert turn.deliver("a") != turn.deliver("a")
        assert turn.deliver("b", delivery="mine") == turn.deliver("b", delivery="mine") == "mine"
        turn.add_assistant("hi")
    assert [parcel.body["text"] for parcel in store.outbox.find().items] == ["a", "a", "b"]


def test_the_answer_and_its_delivery_are_one_transaction(store: Store) -> None:
    with store.turn(ANA, "hello") as turn:
        moments: list[tuple[int, str]] = []
        watch(store, lambda number, moment: moments.append((number, moment)))
        turn.add_assistant("hi", deliver="origin", usage=Usage(1, 1))
    assert moments == [(1, "before"), (1, "after")]
    (parcel,) = store.outbox.find().items
    assert parcel.body == {"text": "hi"}


def test_an_answer_without_words_delivers_nothing(store: Store) -> None:
    with store.turn(ANA, "hello") as turn:
        turn.add_assistant(None, tool_calls=[call()], deliver="origin")
        turn.add_assistant("", deliver="origin")
    assert store.outbox.find().items == ()


# -- the end of a turn


def test_a_turn_that_fails_leaves_typed_results_and_no_lease(store: Store, stage: Handles) -> None:
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
    apart = open_beside(stage)
    with apart.turn(ANA, "and now?", wait=0) as after:
        assert faults_of(after.history()) == []
        after.add_assistant("Sorry.")
    apart.close()
    assert turn_states(store) == ["interrupted", "answered"]


def test_only_the_calls_of_the_turn_itself_are_ended(store: Store) -> None:
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


@pytest.mark.parametrize("problem", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_a_turn_that_is_broken_off_is_closed(store: Store, problem: type[BaseException]) -> None:
    with pytest.raises(problem), store.turn(ANA, "hello"):
        raise problem
    assert turn_states(store) == ["interrupted"]
    exchange(store, "again", "yes", wait=0)


def test_what_the_agent_raised_is_what_comes_out(store: Store) -> None:
    def work(turn: Turn) -> None:
        store.sessions.delete(turn.session.id)
        raise Broken

    with pytest.raises(Broken), store.turn(ANA, "hello") as turn:
        work(turn)


def test_a_turn_without_an_answer_is_silent(store: Store) -> None:
    with store.turn(ANA, "just so you know", message_id="1") as turn:
        turn.add_assistant(None, tool_calls=[call()])
    assert turn_states(store) == ["silent"]
    assert interrupted(log_of(store, turn.session)) == ["c1"]
    with store.turn(ANA, "just so you know", message_id="1") as again:
        assert (again.duplicate, again.answer) == (True, None)
    exchange(store, "hello", "hi", wait=0)


def test_an_answer_ends_the_calls_that_nobody_answered(store: Store) -> None:
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
def test_calls_that_say_little_are_ended_too(store: Store, bare: dict[str, Any]) -> None:
    with store.turn(ANA, "look") as turn:
        turn.add_assistant(None, tool_calls=[bare])
        turn.add_assistant("Never mind.")
    cut_off(store, "again", lambda turn: turn.add_assistant(None, tool_calls=[bare]))
    rows = log_of(store, turn.session)
    assert interrupted(rows) == ["c1", "c1"]
    assert faults_of(turn.history()) == []


def test_after_the_block_nothing_is_written(store: Store) -> None:
    with store.turn(ANA, "hello") as turn:
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


def test_an_answer_may_come_in_parts(store: Store, stage: Handles) -> None:
    apart = open_beside(stage)
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


def test_a_turn_that_fails_between_two_parts_goes_on(store: Store) -> None:
    cut_off(store, "tell me", lambda turn: turn.add_assistant("First,", more=True), message_id="1")
    with store.turn(ANA, "tell me", message_id="1") as turn:
        assert not turn.duplicate
        turn.add_assistant("second.")
    assert contents(store, turn.session) == ["tell me", "First,", "second."]


def test_a_turn_may_go_on_after_its_answer(store: Store, stage: Handles) -> None:
    apart = open_beside(stage)
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
def test_what_was_answered_stays_answered(store: Store, stage: Handles, is_killed: bool) -> None:
    apart = open_beside(stage)

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


def test_deliveries_and_usage_may_follow_the_answer(store: Store, stage: Handles) -> None:
    apart = open_beside(stage)
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


# -- a message whose turn was cut off comes again


def test_a_turn_that_was_cut_off_goes_on(store: Store, other: Store) -> None:
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


def test_a_turn_in_the_past_does_not_go_on(store: Store) -> None:
    cut_off(store, "first", message_id="1")
    exchange(store, "second", "2")
    before = log_of(store, exchange(store, "third", "3").session)
    with store.turn(ANA, "first", message_id="1", wait=0) as turn:
        assert (turn.duplicate, turn.answer, turn.is_cut_off) == (True, None, True)
    assert log_of(store, turn.session) == before


def test_a_turn_of_a_session_that_was_reset_does_not_go_on(store: Store) -> None:
    turn = cut_off(store, "first", message_id="1")
    fresh = store.sessions.reset(turn.session.key)
    assert fresh is not None
    with store.turn(ANA, "first", message_id="1", wait=0) as again:
        assert (again.duplicate, again.answer, again.is_cut_off) == (True, None, True)
    assert contents(store, fresh) == []


def test_a_turn_that_was_taken_back_does_not_go_on(store: Store) -> None:
    exchange(store, "zero", "0")
    turn = cut_off(store, "first", message_id="1")
    store.transcript(turn.session.id).undo()
    before = log_of(store, turn.session)
    with store.turn(ANA, "first", message_id="1", wait=0) as again:
        assert (again.duplicate, again.answer) == (True, None)
    assert log_of(store, turn.session) == before
    store.transcript(turn.session.id).redo()
    assert exchange(store, "first", "1", message_id="1").duplicate is False


def test_a_turn_without_a_message_goes_on_too(store: Store) -> None:
    turn = store.turn(ANA, message_id="1")
    assert turn.try_to_enter()
    turn.leave(failed=True)
    with store.turn(ANA, message_id="1") as turn:
        assert not turn.duplicate
        turn.add_assistant("What was that?")
    with store.turn(ANA, message_id="1") as turn:
        assert turn.answer == "What was that?"


def test_going_on_is_no_activity(store: Store, clock: FakeClock) -> None:
    said_at = clock.now()
    cut_off(store, "first", message_id="1")
    clock.forward(hours=3)
    turn = exchange(store, "first", "1", message_id="1")
    assert turn.session.updated_at == said_at
    assert store.sessions.require(turn.session.id).updated_at == said_at


def test_going_on_asks_the_policy(store: Store, clock: FakeClock) -> None:
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
def test_what_was_cut_off_goes_on_though_a_policy_has_ended_its_session(
    stage: Handles, store: Store, is_closed: bool, is_begun: bool
) -> None:
    """Also where somebody else had the policy asked, and the next session has its own talk."""
    lost = open_beside(stage)
    if is_closed:
        first = cut_off(lost, "first", message_id="1")
    else:
        first = lost.turn(ANA, "first", message_id="1")
        assert first.try_to_enter()
        let_lease_run_out(store, first.session)
    stage.clock.forward(days=2)
    assert store.sessions.expire(first.session.id) is not None
    if is_begun:
        exchange(store, "good morning", "hello")
    turn = exchange(store, "first", "1", message_id="1")
    assert not turn.duplicate
    assert turn.session.id != first.session.id
    assert contents(store, turn.session)[-2:] == ["first", "1"]
    with store.turn(ANA, "first", message_id="1") as again:
        assert (again.duplicate, again.answer, again.is_cut_off) == (True, "1", False)
    lost.close()


def test_a_policy_begins_no_second_turn_beside_the_first(stage: Handles, store: Store) -> None:
    apart = open_beside(stage)
    with store.turn(ANA, "a long story") as turn:
        stage.clock.forward(days=2)
        with pytest.raises(SessionBusy), apart.turn(ANA, "well?", wait=0):
            pass
        assert store.sessions.require(turn.session.id).ended_at is None
        turn.add_assistant("The end.")
    after = exchange(apart, "well?", "Well.", wait=0)
    assert after.session.id != turn.session.id
    assert after.notice is not None
    apart.close()


# -- waiting


@pytest.mark.parametrize("wait", [0, 0.05])
def test_who_has_waited_long_enough_is_told_so(store: Store, other: Store, wait: float) -> None:
    with store.turn(ANA, "one") as turn:
        with pytest.raises(SessionBusy) as caught, other.turn(ANA, "two", wait=wait):
            pass
        assert caught.value.retryable
        assert caught.value.key == turn.session.key
        assert contents(store, turn.session) == ["one"]
        turn.add_assistant("1")
    assert tickets(store) == 0
    exchange(other, "two", "2", wait=0)


def test_turns_of_other_sessions_do_not_wait(store: Store) -> None:
    waiting = store.turn(ANA, "three")
    with store.turn(ANA, "one") as first:
        assert not waiting.try_to_enter()
        with store.turn(BEN, "two", wait=0) as second:
            second.add_assistant("2")
        first.add_assistant("1")
    waiting.give_up()


def test_in_one_process_a_turn_holds_its_session_to_the_end_of_its_block(
    store: Store, other: Store
) -> None:
    """So that what follows its answer comes before the next message."""
    with store.turn(ANA, "one") as turn:
        turn.add_assistant("1")
        with pytest.raises(SessionBusy), other.turn(ANA, "two", wait=0):
            pass
        turn.add_assistant("1, to be precise")
    exchange(other, "two", "2", wait=0)
    assert contents(store, turn.session) == ["one", "1", "1, to be precise", "two", "2"]


def test_who_waits_in_the_same_process_is_woken(
    store: Store, other: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And need not look for itself: here it would look again far too late."""
    monkeypatch.setattr(turn_module, "_PAUSES", (10 * PATIENCE,))
    done: list[Turn] = []
    waiting = threading.Thread(
        target=lambda: done.append(exchange(other, "two", "2", wait=20 * PATIENCE)), daemon=True
    )
    with store.turn(ANA, "one") as turn:
        waiting.start()
        until(lambda: tickets(store) == 1, "it waits")
        turn.add_assistant("1")
    until(lambda: done, "it is woken")
    waiting.join()
    assert contents(store, turn.session) == ["one", "1", "two", "2"]


def test_a_duplicate_that_waited_keeps_nobody_waiting(stage: Handles, store: Store) -> None:
    """Its ticket would have to lapse first."""
    apart = open_beside(stage)
    turn = store.turn(ANA, "one", message_id="1")
    again = apart.turn(ANA, "one", message_id="1")
    after = apart.turn(ANA, "two")
    with turn:
        assert not again.try_to_enter()
        assert not after.try_to_enter()
        turn.add_assistant("1")
    assert after.try_to_enter()
    after.add_assistant("2")
    after.leave()
    assert again.try_to_enter()
    assert (again.duplicate, again.answer) == (True, "1")
    apart.close()


def test_a_duplicate_that_queued_leaves_the_queue(stage: Handles, store: Store) -> None:
    apart = open_beside(stage)
    one, again = (apart.turn(ANA, "one", message_id="1") for _ in range(2))
    with store.turn(ANA, "zero") as turn:
        assert not one.try_to_enter()
        assert not again.try_to_enter()
        turn.add_assistant("0")
    assert one.try_to_enter()
    one.add_assistant("1")
    one.leave()
    assert again.try_to_enter()
    assert again.duplicate
    assert tickets(store) == 0
    apart.close()


def test_an_error_in_entering_leaves_the_queue(
    stage: Handles, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise Broken

    apart = open_beside(stage)
    waiting = apart.turn(ANA, "two")
    with store.turn(ANA, "one") as turn:
        assert not waiting.try_to_enter()
        assert tickets(store) == 1
        with monkeypatch.context() as patched:
            patched.setattr(stage.clock, "now", fail)
            with pytest.raises(Broken):
                waiting.__enter__()
        assert tickets(store) == 0
        turn.add_assistant("1")
    apart.close()


# -- agents that keep a form of their own


def test_messages_are_stored_as_they_are_in_one_turn(store: Store) -> None:
    with store.turn(ANA) as turn:
        turn.extend([{"role": "user", "content": "a", "own": [1]}], usage=Usage(3, 1))
        assert turn.extend([{"role": "assistant", "content": "b"}], is_last=True) == 2
        assert turn.answer == "b"
    assert [(row.turn, row.content) for row in log_of(store, turn.session)] == [(1, "a"), (1, "b")]
    assert turn_states(store) == ["answered"]
    assert store.sessions.require(turn.session.id).usage.total == 4


def test_an_old_epoch_extends_nothing(stage: Handles, store: Store) -> None:
    turn = store.turn(ANA, "a")
    with contextlib.suppress(LeaseLost), turn:
        let_lease_run_out(store, turn.session)
        with open_beside(stage).turn(ANA, "b") as second:
            with pytest.raises(LeaseLost):
                turn.extend([{"role": "assistant", "content": "late"}], is_last=True)
            second.add_assistant("re b")
    assert contents(store, turn.session) == ["a", "b", "re b"]


def test_calls_may_wait_for_their_results_in_a_later_turn(store: Store) -> None:
    turn = store.turn(ANA, "may I?")
    turn.__enter__()
    turn.add_assistant(None, tool_calls=[call()])
    turn.leave(keep_calls=True)
    assert unanswered(log_of(store, turn.session)) == ["c1"]
    with store.turn(ANA) as later:
        later.extend([{"role": "tool", "tool_call_id": "c1", "content": "done"}])
        later.add_assistant("it is done")
    assert interrupted(log_of(store, turn.session)) == []
    assert [message["role"] for message in later.history()] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


def test_a_turn_that_is_given_up_is_renewed_no_longer(store: Store) -> None:
    with store.turn(ANA, "a") as turn:
        assert turn.renew()
        turn.is_given_up = lambda: True
        assert not turn.renew()
