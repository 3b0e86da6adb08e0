"""Texts of the gateway: they say what happened and what to do, without texts of the provider."""

from __future__ import annotations

import pytest

from tertulia.core.session import Notice
from tertulia.errors import (
    AgentError,
    AgentFailed,
    AgentTimeout,
    AgentUnavailable,
    BudgetExceeded,
    ContextOverflow,
    Error,
)
from tertulia.gateway import replies


def test_pairing_ends_its_first_line_with_the_code() -> None:
    assert replies.pairing("K7WQ2M4X").splitlines()[0].endswith(" K7WQ2M4X")


@pytest.mark.parametrize(
    ("reason", "text"), [("idle", "you had not written for a while"), ("other", "because other.")]
)
def test_notice_names_the_reason_and_the_way_back(reason: str, text: str) -> None:
    notice = replies.notice(Notice(reason, True, "s1", notify=True))
    assert text in notice
    assert "/resume 1" in notice


@pytest.mark.parametrize(
    ("problem", "advice"),
    [
        (AgentTimeout("SECRET"), "/retry"),
        (AgentUnavailable("SECRET"), "/retry"),
        (AgentError("SECRET"), "/retry"),
        (ContextOverflow("SECRET"), "/new"),
    ],
)
def test_failure_gives_advice_and_hides_the_text_of_the_provider(
    problem: AgentError, advice: str
) -> None:
    text = replies.failed(problem)
    assert f"send {advice} to " in text
    assert "SECRET" not in text


def test_given_up_names_the_code_and_hides_the_message() -> None:
    assert "(error)" in replies.given_up(Error("SECRET"))
    assert "SECRET" not in replies.given_up(Error("SECRET"))


def test_interrupted_retry_is_restored_before_it_is_repeated() -> None:
    assert "send /redo, then /retry if needed" in replies.interrupted("retry")
    assert "send it again if needed" in replies.interrupted("undo")


def test_refusal_is_the_message_and_hint_of_the_budget() -> None:
    assert replies.refused(BudgetExceeded("Used up.", hint="Wait.")) == "Used up. Wait."


def test_failure_for_the_owner_is_the_cause_in_sentences() -> None:
    text = replies.failed_for_owner(AgentFailed("no luck", hint="try tomorrow"))
    assert text == "✗ no luck. try tomorrow. Your message is stored; /retry asks again."
    text = replies.failed_for_owner(ContextOverflow("Too long.", hint="Compact it."))
    assert text.endswith("Compact it. Your message is stored; /new begins a new conversation.")
