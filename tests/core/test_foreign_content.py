"""Which messages contain what neither the person nor the agent wrote."""

from __future__ import annotations

from typing import Any

import pytest

from tertulia.core.foreign_content import has_foreign_content, newest_turn
from tertulia.core.message import Message


def _message(turn: int, body: dict[str, Any]) -> Message:
    return Message(1, turn, turn, "assistant", None, 0, None, body)


def _call(name: str) -> dict[str, Any]:
    return {"tool_calls": [{"id": "c", "function": {"name": name, "arguments": "{}"}}]}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"content": "hello"}, False),
        (_call("terminal"), False),
        (_call("files__read"), True),
        ({"media": [{"type": "image/png"}]}, False),
        ({"media": [{"type": "application/pdf"}]}, True),
        ({"media": ["nonsense"]}, True),
        ({"tool_calls": ["nonsense", {"function": None}]}, False),
    ],
)
def test_results_of_servers_and_documents_are_foreign(body: dict[str, Any], expected: bool) -> None:
    assert has_foreign_content([_message(1, {"content": "hi"}), _message(1, body)]) is expected


def test_the_newest_turn_is_that_of_the_last_message() -> None:
    messages = [_message(1, {}), _message(2, {}), _message(2, {})]
    assert newest_turn(messages) == messages[1:]
