"""Histories larger than their budget, with deliveries and summaries."""

from __future__ import annotations

import re

from tertulia.core.history.repair import INTERRUPTED_RESULT
from tertulia.records.transcript.transcript import Transcript
from tests.core.history.messages import FORMATS, add_row, answer, ask, calls, result
from tests.legality.validators import faults


def test_same_call_id_at_each_step_of_a_cut_turn(transcript: Transcript) -> None:
    """The window begins between a call and its result; the result must not go to the next call."""
    transcript.append(ask())
    for number in range(30):
        transcript.extend(
            [calls("call_0", content=f"step {number}"), result("call_0", f"{number}")]
        )
    transcript.append(calls("call_0", content="the last"))
    for max_messages in range(3, 12):
        messages = transcript.history(max_messages=max_messages)
        assert messages[0] == ask()
        assert messages[-1]["content"] == INTERRUPTED_RESULT
        for step, result_message in zip(messages[1:-2:2], messages[2:-2:2], strict=True):
            assert step["content"] == f"step {result_message['content']}"


def test_huge_result_is_shortened_in_the_middle(transcript: Transcript) -> None:
    page = "<html>" + "<p>line</p>\n" * 50_000 + "</html>"
    transcript.extend([ask(), calls("a"), result("a", page)])
    messages = transcript.history(max_tokens=8_000)
    text = messages[-1]["content"]
    assert text.startswith("<html>")
    assert text.endswith("</html>")
    mark = re.search(r"\[… (\d+) of (\d+) characters left out …\]", text)
    assert mark is not None
    assert int(mark[2]) == len(page)
    kept_length = len(text) - len(mark[0]) - 2
    assert int(mark[1]) == len(page) - kept_length
    assert len(text) > 4_000, "as much as fits"


def test_huge_arguments_are_shortened_and_stay_json(transcript: Transcript) -> None:
    """A model that wrote a large file must still see that it did, or it does it again."""
    transcript.extend(
        [ask(), calls("a", arguments='{"path": "a", "text": "%s"}' % ("x" * 200_000))]
    )
    transcript.append(result("a", "written"))
    for form in FORMATS:
        messages = transcript.history(max_tokens=2_000, format=form)  # type: ignore[arg-type]
        assert faults(form, messages) == []
    _, step, done = transcript.history(max_tokens=2_000)
    assert done == result("a", "written")
    arguments = step["tool_calls"][0]["function"]["arguments"]
    assert arguments.startswith('{"path": "a", "text": "xxx')
    assert "characters left out" in arguments


def test_newest_steps_of_a_long_turn_are_kept(transcript: Transcript) -> None:
    transcript.append(ask())
    for number in range(60):
        transcript.extend([calls(f"c{number}"), result(f"c{number}", f"{number} " + "word " * 300)])
    messages = transcript.history(max_tokens=8_000)
    assert messages[0] == ask()
    assert messages[-1]["content"].startswith("59 ")
    assert 4 < len(messages) < 60
    assert "left out" not in messages[-1]["content"], "a decent length is not shortened"


def test_question_larger_than_the_budget_stays_whole(transcript: Transcript) -> None:
    transcript.extend([ask("earlier"), answer(), ask("word " * 5_000), answer()])
    assert transcript.history(max_tokens=100) == [ask("word " * 5_000)]


def test_delivery_before_an_answer_is_kept(transcript: Transcript) -> None:
    transcript.extend([ask("old"), answer("old")])
    add_row(transcript, "delivery", answer("Your build is done."))
    transcript.append(ask("Which one?"))
    assert transcript.history(max_messages=2) == [answer("Your build is done."), ask("Which one?")]
    assert transcript.history(max_messages=3) == transcript.history(max_messages=2)
    assert transcript.history(max_messages=1) == [ask("Which one?")]
    (message,) = transcript.history(max_messages=2, format="anthropic")
    assert [part["text"] for part in message["content"]] == [
        "[You had written this before, unasked]",
        "Your build is done.",
        "Which one?",
    ]


def test_only_the_last_delivery_comes_before_the_first_turn(transcript: Transcript) -> None:
    add_row(transcript, "delivery", answer("one"))
    add_row(transcript, "delivery", answer("two"))
    transcript.append(ask())
    assert transcript.history() == [answer("two"), ask()]


def test_history_of_a_summary_alone(transcript: Transcript) -> None:
    transcript.extend([ask(), answer()])
    transcript.compact(lambda messages, previous: "They spoke of the weather.", keep_turns=0)
    for max_messages in (1, 2, 500):
        (message,) = transcript.history(max_messages=max_messages)
        assert message["content"].endswith("They spoke of the weather.")


def test_newest_message_is_more_important_than_the_summary(transcript: Transcript) -> None:
    transcript.extend([ask("old " * 500), answer()])
    transcript.compact(lambda messages, previous: "They spoke. " * 100, keep_turns=0)
    transcript.append(ask("new"))
    assert transcript.history(max_messages=1) == [ask("new")]
    message, new = transcript.history(max_tokens=200)
    assert new == ask("new")
    assert "characters left out" in message["content"]
