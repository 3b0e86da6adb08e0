"""Foreign content: parts of a conversation that neither the person nor the agent wrote.

Results of tool servers, documents and recordings may contain instructions of strangers. An agent
that has read them may do less by itself: see `gateway/memory_tool.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from tertulia.core.message import Message

# Tools of MCP servers have a name with two underscores; built-in tools have none.
FOREIGN_MARK: Final = "__"


def has_foreign_content(messages: Iterable[Message]) -> bool:
    """Return whether the messages contain calls of foreign tools, documents or recordings."""
    return any(
        any(FOREIGN_MARK in name for name in _tool_names(message.body.get("tool_calls") or ()))
        or any(not _is_image(file) for file in message.body.get("media") or ())
        for message in messages
    )


def newest_turn(messages: Sequence[Message]) -> list[Message]:
    """Return those of the messages that belong to the turn of the last one."""
    return [message for message in messages if message.turn == messages[-1].turn]


def _tool_names(calls: Iterable[Any]) -> Iterable[str]:
    for call in calls:
        function = call.get("function") if isinstance(call, dict) else None
        yield str(function.get("name")) if isinstance(function, dict) else ""


def _is_image(file: object) -> bool:
    return isinstance(file, dict) and str(file.get("type") or "").startswith("image/")
