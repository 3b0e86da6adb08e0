"""Damaged transcripts that made other systems fail, repaired one by one."""

from __future__ import annotations

import json

import pytest

from tertulia.core.history.formats import Format
from tertulia.core.history.repair import INTERRUPTED_RESULT
from tertulia.records.transcript.transcript import Transcript
from tests.core.history.messages import add_row, answer, ask, calls, result


def test_call_without_a_result_gets_an_interrupted_result(transcript: Transcript) -> None:
    transcript.extend([ask(), calls("a", "b"), result("b"), ask("Hello?")])
    assert transcript.history() == [
        ask(),
        calls("a", "b"),
        result("a", INTERRUPTED_RESULT),
        result("b"),
        ask("Hello?"),
    ]


def test_result_without_a_call_at_the_end_is_dropped(transcript: Transcript) -> None:
    transcript.extend([ask(), answer(), result("nobody")])
    assert transcript.history() == [ask(), answer()]


def test_result_without_a_call_after_a_person_is_dropped(transcript: Transcript) -> None:
    transcript.extend([ask(), result("nobody")])
    assert transcript.history(max_messages=1) == [ask()]


def test_repeated_call_ids_across_turns_become_unique(transcript: Transcript) -> None:
    for number in range(3):
        transcript.extend(
            [ask(f"{number}?"), calls("call_0"), result("call_0", f"result {number}")]
        )
    messages = transcript.history()
    assert [m["content"] for m in messages if m["role"] == "tool"] == [
        "result 0",
        "result 1",
        "result 2",
    ]
    assert [m["tool_call_id"] for m in messages if m["role"] == "tool"] == [
        "call_0",
        "call_0_2",
        "call_0_3",
    ]


def test_same_call_id_twice_in_one_message(transcript: Transcript) -> None:
    transcript.extend([ask(), calls("x", "x"), result("x", "first"), result("x", "second")])
    assert [m["content"] for m in transcript.history()[2:]] == ["first", "second"]


def test_late_result_moves_to_its_call(transcript: Transcript) -> None:
    transcript.extend([ask(), calls("a"), ask("Still there?"), answer("Yes."), result("a", "late")])
    assert transcript.history() == [ask(), calls("a"), result("a", "late"), ask("Still there?"),
                              answer("Yes.")]  # fmt: skip


def test_early_result_moves_to_its_call(transcript: Transcript) -> None:
    transcript.extend([ask(), result("a", "early"), calls("a"), answer()])
    assert transcript.history() == [ask(), calls("a"), result("a", "early"), answer()]


def test_second_result_of_a_call_is_dropped(transcript: Transcript) -> None:
    transcript.extend([ask(), calls("a"), result("a", "one"), result("a", "two"), answer()])
    assert transcript.history() == [ask(), calls("a"), result("a", "one"), answer()]


def test_results_without_ids_are_assigned_in_order(transcript: Transcript) -> None:
    first, second = result("", "one"), {"role": "tool", "content": "two"}
    transcript.extend([ask(), calls("a", "b"), first, second])
    assert [m["content"] for m in transcript.history()[2:]] == ["one", "two"]


@pytest.mark.parametrize("length", [41, 90, 5000])
def test_long_call_ids_are_shortened_and_stay_unique(transcript: Transcript, length: int) -> None:
    transcript.extend([ask(), calls("x" * length, "x" * (length + 1)), result("x" * length)])
    messages = transcript.history()
    ids = [call["id"] for call in messages[1]["tool_calls"]]
    assert all(len(i) == 40 for i in ids)
    assert len(set(ids)) == 2
    assert [m["content"] for m in messages[2:]] == ["sunny", INTERRUPTED_RESULT]


def test_call_of_another_api_is_converted(transcript: Transcript) -> None:
    made = {"id": "t1", "name": "fs.read", "input": {"path": "a"}}
    transcript.extend([ask(), {**answer(None), "tool_calls": made}, result("t1")])
    (call,) = transcript.history()[1]["tool_calls"]
    assert call["function"] == {"name": "fs_read", "arguments": '{"path": "a"}'}
    assert transcript.history(format="anthropic")[1]["content"][0]["input"] == {"path": "a"}


def test_commands_and_internal_rows_are_left_out_before_results_are_assigned(
    transcript: Transcript,
) -> None:
    transcript.extend([ask(), calls("a")])
    add_row(transcript, "command", ask("/usage"))
    add_row(transcript, "internal", answer("12 tokens"))
    transcript.extend([result("a"), answer()])
    add_row(transcript, "command", ask("/status"))
    assert transcript.history() == [ask(), calls("a"), result("a"), answer()]


def test_empty_answer_is_dropped(transcript: Transcript) -> None:
    transcript.extend(
        [ask("1"), answer(""), ask("2"), answer(None), ask("3"), answer([]), ask("4")]
    )
    assert transcript.history() == [ask("1"), ask("2"), ask("3"), ask("4")]


def test_empty_message_of_a_person_is_kept(transcript: Transcript) -> None:
    transcript.extend([ask(""), ask(None), ask([]), ask("  ")])
    assert [m["content"] for m in transcript.history()] == ["[empty message]"] * 4


def test_unpaired_surrogates_are_replaced(transcript: Transcript) -> None:
    transcript.extend([ask("\ud83d hi"), calls("a\ud800", "a\ud801", content="\udc00"), ask("x")])
    messages = transcript.history()
    assert messages[0] == ask("\ufffd hi")
    assert [call["id"] for call in messages[1]["tool_calls"]] == ["a\ufffd", "a\ufffd_2"]


def test_result_that_names_its_call_comes_before_one_without_an_id(transcript: Transcript) -> None:
    unnamed = {"role": "tool", "content": "whose?"}
    transcript.extend([ask(), calls("a"), unnamed, result("a", "mine"), answer()])
    assert transcript.history() == [ask(), calls("a"), result("a", "mine"), answer()]


def test_result_without_an_id_goes_to_the_call_that_nobody_names(transcript: Transcript) -> None:
    unnamed = {"role": "tool", "content": "for b"}
    transcript.extend([ask(), calls("a", "b"), unnamed, result("a", "for a"), answer()])
    assert transcript.history()[2:4] == [result("a", "for a"), result("b", "for b")]


def test_early_result_with_an_id_comes_before_one_without(transcript: Transcript) -> None:
    unnamed = {"role": "tool", "content": "whose?"}
    transcript.extend([ask(), result("a", "early"), calls("a"), unnamed, answer()])
    assert transcript.history()[2] == result("a", "early")


@pytest.mark.parametrize("arguments", ["null", "[1]", "5", '"x"', "{", [1], 5])
@pytest.mark.parametrize("form", ["openai", "responses"])
def test_arguments_of_a_call_are_always_an_object(
    transcript: Transcript, arguments: object, form: Format
) -> None:
    made = {"id": "t1", "type": "function", "function": {"name": "read", "arguments": arguments}}
    transcript.extend([ask(), {**answer(None), "tool_calls": [made]}, result("t1")])
    call = transcript.history(format=form)[1]
    function = call if form == "responses" else call["tool_calls"][0]["function"]
    assert isinstance(json.loads(function["arguments"]), dict)
