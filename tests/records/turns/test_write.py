"""Writing in a turn: calls and results, usage, deliveries."""

from __future__ import annotations

from typing import Any

import pytest

from tertulia import (
    ConfigError,
    HomeChannel,
    IllegalMove,
    Source,
    Store,
    StoreError,
    ToolCall,
    Usage,
)
from tertulia.core.history.repair import INTERRUPTED_RESULT
from tertulia.testing import Handles
from tertulia.testing.fault_points import watch_commits
from tertulia.testing.fixtures import outcomes, run_in_threads
from tests.records.store_inspection import ANA, call, contents, execute, faults_of, log_of


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
def test_tool_result_may_be_any_json_value(store: Store, content: Any, stored: Any) -> None:
    with store.turn(ANA, "look") as turn:
        turn.add_assistant(None, tool_calls=[call()])
        turn.add_tool_result("c1", content)
        turn.add_assistant("Blue.")
    assert contents(store, turn.session)[2] == stored


def test_result_for_an_unknown_call_and_a_second_result_are_refused(store: Store) -> None:
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


def test_provider_may_reuse_call_ids(store: Store) -> None:
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


def test_result_of_a_reused_id_belongs_to_the_newest_call(store: Store) -> None:
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


def test_two_calls_with_one_id_take_two_results(store: Store) -> None:
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


def test_late_result_belongs_to_its_call(store: Store) -> None:
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


def test_threads_may_store_the_results_of_one_step(store: Store) -> None:
    ids = [f"c{number}" for number in range(8)]
    with store.turn(ANA, "look around") as turn:
        turn.add_assistant(None, tool_calls=[call(name) for name in ids])
        run_in_threads(*(lambda name=name: turn.add_tool_result(name, name) for name in ids))
        turn.add_assistant("Seen.")
    results = [message["content"] for message in turn.history() if message["role"] == "tool"]
    assert results == ids


def test_result_whose_write_failed_can_be_stored_again(store: Store) -> None:
    def fail(number: int, moment: str) -> None:
        if moment == "before" and fails:
            raise StoreError("The disk is gone.")

    with store.turn(ANA, "look") as turn:
        turn.add_assistant(None, tool_calls=[call()])
        with pytest.raises(IllegalMove, match="JSON"):
            turn.add_tool_result("c1", object())
        fails = True
        watch_commits(store, fail)
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


def test_other_fields_are_stored_and_replace_no_own_field(store: Store) -> None:
    with store.turn(ANA, "hello") as turn:
        turn.add_assistant("hi", role="user", content="forged", thinking_blocks=[{"thinking": "?"}])
    assert log_of(store, turn.session)[1].body == {
        "role": "assistant",
        "content": "hi",
        "thinking_blocks": [{"thinking": "?"}],
    }


def test_usage_is_stored_with_its_message(store: Store, other: Store) -> None:
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


def test_usage_in_a_shared_chat_belongs_to_the_author(handles: Handles) -> None:
    store = handles.open(group_sessions_per_user=False)
    for user, tokens in (("42", 5), ("43", 7), ("42", 11)):
        source = Source("telegram", "-100", chat_type="group", user_id=user)
        with store.turn(source, "hi") as turn:
            turn.add_assistant("hello", usage=Usage(tokens))
    sums = store.usage.sum(by="person")
    assert {name: usage.input for name, usage in sums.items()} == {
        "telegram:42": 16,
        "telegram:43": 7,
    }


def test_delivery_is_in_the_outbox_when_the_call_returns(store: Store, other: Store) -> None:
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
    handles: Handles, to: str, place: tuple[str, str | None, str | None]
) -> None:
    store = handles.open(homes={"discord": HomeChannel("home")})
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


def test_deliveries_have_different_ids_unless_one_is_given(store: Store) -> None:
    with store.turn(ANA, "hello") as turn:
        assert turn.deliver("a") != turn.deliver("a")
        assert turn.deliver("b", delivery="mine") == turn.deliver("b", delivery="mine") == "mine"
        turn.add_assistant("hi")
    assert [parcel.body["text"] for parcel in store.outbox.find().items] == ["a", "a", "b"]


def test_the_answer_and_its_delivery_are_one_transaction(store: Store) -> None:
    with store.turn(ANA, "hello") as turn:
        moments: list[tuple[int, str]] = []
        watch_commits(store, lambda number, moment: moments.append((number, moment)))
        turn.add_assistant("hi", deliver="origin", usage=Usage(1, 1))
    assert moments == [(1, "before"), (1, "after")]
    (parcel,) = store.outbox.find().items
    assert parcel.body == {"text": "hi"}


@pytest.mark.parametrize("text", ["", " \n"])
def test_answer_without_text_delivers_nothing(store: Store, text: str) -> None:
    """Chat apps refuse a blank message: it would end as a dead letter."""
    with store.turn(ANA, "hello") as turn:
        turn.add_assistant(None, tool_calls=[call()], deliver="origin")
        turn.add_assistant(text, deliver="origin")
    assert store.outbox.find().items == ()
