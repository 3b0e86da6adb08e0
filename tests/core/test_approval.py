"""Which calls run, ask or never run; and how their arguments are shown."""

from __future__ import annotations

import json
import unicodedata
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.approval import (
    ApprovalRule,
    ApprovalSettings,
    Decision,
    arguments_of,
    decide,
    digest_call,
    escape_invisible,
    show_arguments,
)
from tertulia.core.message import ToolCall
from tertulia.errors import ConfigError

DECISIONS = st.sampled_from(["allow", "ask", "deny"])
RULES = st.builds(
    ApprovalRule,
    tool=st.sampled_from(["terminal", "term*", "*", "files__*", "process"]),
    decision=DECISIONS,
    role=st.sampled_from([None, "owner", "member"]),
)


@pytest.mark.parametrize(
    ("tool", "arguments", "asks", "decision"),
    [
        ("terminal", {"command": "ls"}, False, "ask"),
        ("process", {"action": "kill"}, False, "ask"),
        ("process", {"action": "write"}, False, "ask"),
        ("process", {"action": "submit"}, False, "ask"),
        ("process", {"action": "log"}, False, "allow"),
        ("schedule", {}, False, "allow"),
        ("files__write", {}, True, "ask"),
        ("files__read", {}, False, "allow"),
    ],
)
def test_defaults(tool: str, arguments: dict[str, Any], asks: bool, decision: Decision) -> None:
    assert decide(tool, arguments, "owner", (), asks=asks) == decision


def test_most_specific_rule_decides() -> None:
    rules = (
        ApprovalRule(tool="*", decision="allow"),
        ApprovalRule(tool="terminal", decision="ask"),
        ApprovalRule(tool="terminal", command="git status", decision="allow"),
        ApprovalRule(tool="files__*", decision="ask", role="member"),
    )
    for order in permutations(rules):
        assert decide("terminal", {"command": "git status"}, "owner", order) == "allow"
        assert decide("terminal", {"command": "git status; rm"}, "owner", order) == "ask"
        assert decide("files__read", {}, "member", order) == "ask"
        assert decide("files__read", {}, "owner", order, asks=True) == "allow"


@given(rules=st.lists(RULES, max_size=6), role=st.sampled_from(["owner", "member", "guest"]))
def test_deny_wins_and_order_does_not_matter(rules: list[ApprovalRule], role: str) -> None:
    decision = decide("terminal", {"command": "ls"}, role, rules)
    assert decision == decide("terminal", {"command": "ls"}, role, rules[::-1])
    denies = [rule for rule in rules if rule.decision == "deny"]
    is_denied = any(rule.matches("terminal", {"command": "ls"}, role) for rule in denies)
    assert (decision == "deny") == is_denied


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=30), max_size=4))
def test_shown_arguments_have_no_invisible_character_and_lose_nothing(
    arguments: dict[str, str],
) -> None:
    shown = show_arguments(arguments)
    assert json.loads(shown) == arguments
    for char in shown.replace("\n", ""):
        assert char == " " or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co", "Zs")


@given(st.text())
def test_escaping_twice_changes_nothing(text: str) -> None:
    once = escape_invisible(text)
    assert escape_invisible(once) == once


def test_digest_is_of_the_call_and_its_turn() -> None:
    call = ToolCall("c1", "terminal", '{"command": "ls", "pty": true}')
    same = ToolCall("c1", "terminal", {"pty": True, "command": "ls"})
    assert digest_call("s", 1, call) == digest_call("s", 1, same)
    others = [
        digest_call("t", 1, call),
        digest_call("s", 2, call),
        digest_call("s", 1, ToolCall("c2", "terminal", call.arguments)),
        digest_call("s", 1, ToolCall("c1", "process", call.arguments)),
        digest_call("s", 1, ToolCall("c1", "terminal", '{"command": "ls ", "pty": true}')),
    ]
    assert len({digest_call("s", 1, call), *others}) == 6


@pytest.mark.parametrize("arguments", ["[1]", "no json", '"text"', "\ud800"])
def test_arguments_that_are_no_object_are_none(arguments: str) -> None:
    assert arguments_of(ToolCall("c", "t", arguments)) is None


def test_invalid_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="names no tool"):
        ApprovalRule(tool="", decision="ask")
    with pytest.raises(ConfigError, match="has no commands"):
        ApprovalRule(tool="files__*", command="ls", decision="ask")
    with pytest.raises(ConfigError, match="minutes"):
        ApprovalSettings(minutes=0)
