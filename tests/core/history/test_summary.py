from __future__ import annotations

import pytest

from tertulia.core.history.summary import extract_summary, find_summary_problem
from tests.core.history.messages import Body, answer, ask, calls, result


def test_extract_has_the_first_words_of_both_sides() -> None:
    messages = [ask("What\nis it?"), calls("a"), result("a"), answer("x" * 1000)]
    _, person, assistant = extract_summary(messages, None).split("\n")
    assert person == "- Person: What is it?"
    assert assistant.startswith("- Assistant: xxx")
    assert assistant.endswith("…")
    assert len(assistant) < 200


def test_extract_continues_an_extract() -> None:
    first = extract_summary([ask("one")], None)
    second = extract_summary([ask("two")], first)
    assert second == f"{first}\n- Person: two"


def test_extract_keeps_a_foreign_summary() -> None:
    assert "They spoke of rain." in extract_summary([ask("two")], "They spoke of rain.")


def test_extract_leaves_out_the_oldest_lines() -> None:
    lines = extract_summary([ask(f"question {number}") for number in range(100)], None).split("\n")
    assert lines[1] == "- (40 older lines left out)"
    assert lines[-1] == "- Person: question 99"
    assert len(lines) == 62


@pytest.mark.parametrize(
    ("summary", "problem"),
    [(3, "not text"), (None, "not text"), (" \n", "empty"), ("word " * 2000, "longer")],
)
def test_unusable_summary_is_described(summary: object, problem: str) -> None:
    messages: list[Body] = [ask("short")]
    assert problem in (find_summary_problem(summary, messages) or "")


def test_short_summary_is_usable() -> None:
    assert find_summary_problem("They spoke.", [ask("word " * 100)]) is None
    assert find_summary_problem("word " * 100, [ask("a")]) is None, (
        "a short conversation may have a longer one"
    )
