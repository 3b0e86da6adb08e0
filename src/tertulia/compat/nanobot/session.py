"""nanobot's session value: its owner changes it and gives it back to be saved."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import Any, Final

from tertulia.core.history.formats import Style, render, token_counter
from tertulia.core.history.repair import HIDDEN_KINDS, HISTORY_ROLES, USER_ROLES, build_blocks
from tertulia.core.history.window import HistoryBudget, fit_history
from tertulia.core.message import TOOL, USER, Message
from tertulia.records.transcript.replace import kind_of

HISTORY_KEYS: Final = frozenset(
    ("role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content")
)

# How many messages beyond the limit are read, to recognise that the window is cut.
_LOOKAHEAD = 4
_TIMESTAMP = re.compile(r"[0-9T:.+Z -]{10,40}")
_FORGED_TIME = re.compile(r"\[(?=\s*message\s+time\s*:)", re.IGNORECASE)


def _now() -> datetime:
    return datetime.now()  # noqa: DTZ005 — nanobot's times are local and have no zone


@dataclass
class Session:
    """A conversation. `last_consolidated` is the number of messages already summarised."""

    key: str
    messages: list[dict[str, Any]] = field(default_factory=list)
    created_at: datetime = field(default_factory=_now)
    updated_at: datetime = field(default_factory=_now)
    metadata: dict[str, Any] = field(default_factory=dict)
    last_consolidated: int = 0

    def __post_init__(self) -> None:
        metadata: object = self.metadata  # a value read from a damaged file may be anything
        if not isinstance(metadata, dict):
            self.metadata = {}
        # An offset past the end would hide all messages.
        if not _is_valid_offset(self.last_consolidated, len(self.messages)):
            self.last_consolidated = 0

    def add_message(self, role: str, content: Any, **fields: Any) -> None:
        """Append a message with the current time."""
        now = _now()
        self.messages.append(
            {"role": role, "content": content, "timestamp": now.isoformat(), **fields}
        )
        self.updated_at = now

    def get_history(
        self, max_messages: int = 500, *, include_timestamps: bool = False
    ) -> list[dict[str, Any]]:
        """Return the newest turns that are not consolidated, in a form that models accept.

        A limit of 0 or less means no limit. With `include_timestamps` the texts of users and of the
        assistant begin with their time, if it is known.
        """
        offset = self.last_consolidated
        unconsolidated = self.messages[
            offset if _is_valid_offset(offset, len(self.messages)) else 0 :
        ]
        limit = max_messages if max_messages > 0 else max(1, len(unconsolidated))
        rows, is_whole = _newest_rows(unconsolidated, limit)
        window = fit_history(
            build_blocks(rows), HistoryBudget(limit), token_counter(Style()), whole=is_whole
        ).blocks
        history = [_copy_message(message) for message in render(window, "openai", Style())]
        if include_timestamps:
            index = 0
            for block in window:
                _add_timestamp(history[index], block.row.body.get("timestamp"))
                index += block.size
        return history

    def clear(self) -> None:
        """Remove all messages."""
        self.messages = []
        self.last_consolidated = 0
        self.metadata.pop("_last_summary", None)
        self.updated_at = _now()

    def retain_recent_legal_suffix(self, max_messages: int) -> None:
        """Keep the newest messages, extended back to the user message that starts their turn."""
        if max_messages <= 0:
            self.clear()
            return
        if len(self.messages) <= max_messages:
            return
        dropped = _turn_start(self.messages, len(self.messages) - max_messages)
        self.messages = self.messages[dropped:]
        self.last_consolidated = max(0, self.last_consolidated - dropped)
        self.updated_at = _now()


def _is_valid_offset(value: object, length: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= length


def _turn_start(messages: Sequence[Any], cut: int) -> int:
    """Return the index of the user message at or before a cut, else of the next one after it."""
    for index in chain(range(cut, -1, -1), range(cut + 1, len(messages))):
        if _role(messages[index]) == USER:
            return index
    # There is no user message. Do not start at a tool result: its call would be lost.
    return next((index for index in range(cut, -1, -1) if _role(messages[index]) != TOOL), 0)


def _newest_rows(messages: Sequence[Any], limit: int) -> tuple[list[Message], bool]:
    """Return as many of the newest messages as the limit can need, and whether those are all."""
    selected: list[tuple[int, dict[str, Any]]] = []
    count = 0
    has_user = False
    for index in range(len(messages) - 1, -1, -1):
        if count >= limit + _LOOKAHEAD and has_user:
            break
        body = messages[index]
        role, is_hidden = _role(body), _kind(body) in HIDDEN_KINDS
        if count >= limit + _LOOKAHEAD and role not in USER_ROLES:
            continue  # the turn is longer than the limit: only its first message is needed
        if role in HISTORY_ROLES and not is_hidden:
            count += 1
            has_user = has_user or role in USER_ROLES
            selected.append((index, body))
    selected.reverse()
    is_whole = not selected or selected[0][0] == 0
    return _rows(selected), is_whole


def _rows(selected: Sequence[tuple[int, dict[str, Any]]]) -> list[Message]:
    rows: list[Message] = []
    turn = 0
    for index, body in selected:
        turn += body["role"] == USER
        rows.append(Message(0, index, turn, body["role"], _kind(body), 0, None, body))
    # A tool result whose call was not selected must not be attached to another call.
    first = next((n for n, row in enumerate(rows) if row.role != TOOL), len(rows))
    return rows[first:] if selected and selected[0][0] > 0 else rows


def _role(message: Any) -> str | None:
    role = message.get("role") if isinstance(message, dict) else None
    return role if isinstance(role, str) else None


def _kind(message: Any) -> str | None:
    return kind_of(message) if isinstance(message, dict) else None


def _copy_message(message: dict[str, Any]) -> dict[str, Any]:
    """Return a copy that the reader may change without changing the session."""
    return {key: copy_json(value) for key, value in message.items() if key in HISTORY_KEYS}


def copy_json(value: Any) -> Any:
    """Return a deep copy of a JSON value; strings and numbers are immutable and shared."""
    if isinstance(value, dict):
        return {key: copy_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [copy_json(item) for item in value]
    return value


def _add_timestamp(message: dict[str, Any], timestamp: object) -> None:
    """Insert the time before the text, and disarm text that imitates such a time."""
    if not isinstance(timestamp, str) or not _TIMESTAMP.fullmatch(timestamp):
        return
    head, content = f"[Message Time: {timestamp}]", message.get("content")
    if isinstance(content, str) and content:
        message["content"] = f"{head}\n{_without_forged_time(content)}"
    elif isinstance(content, list):
        message["content"] = [
            {"type": "text", "text": head},
            *map(_without_forged_time_part, content),
        ]


def _without_forged_time(text: str) -> str:
    return _FORGED_TIME.sub("(", text)


def _without_forged_time_part(part: dict[str, Any]) -> dict[str, Any]:
    text = part.get("text")
    return {**part, "text": _without_forged_time(text)} if isinstance(text, str) else part
