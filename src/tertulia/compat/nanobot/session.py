"""A conversation as nanobot's code holds it: a value that its owner changes and hands back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import Any, Final

from tertulia.core.history.formats import (
    Style,
    render,
    weigher,
)
from tertulia.core.history.repair import (
    HIDDEN,
    PEOPLE,
    SHOWN,
    blocks,
)
from tertulia.core.history.window import (
    HistoryBudget,
    fit,
)
from tertulia.core.message import TOOL, USER, Message
from tertulia.records.transcript.replace import kind_of

KEYS: Final = frozenset(
    ("role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content")
)

# How far past the limit to look, to see that the window is cut.
_SPARE = 4
_TIME = re.compile(r"[0-9T:.+Z -]{10,40}")
_FORGED_TIME = re.compile(r"\[(?=\s*message\s+time\s*:)", re.IGNORECASE)


def _now() -> datetime:
    return datetime.now()  # noqa: DTZ005 — that system's times are local and have no zone


@dataclass
class Session:
    """A conversation. `last_consolidated` is how many messages are summed up elsewhere."""

    key: str
    messages: list[dict[str, Any]] = field(default_factory=list)
    created_at: datetime = field(default_factory=_now)
    updated_at: datetime = field(default_factory=_now)
    metadata: dict[str, Any] = field(default_factory=dict)
    last_consolidated: int = 0

    def __post_init__(self) -> None:
        metadata: object = self.metadata  # what was read from a damaged file may be anything
        if not isinstance(metadata, dict):
            self.metadata = {}
        # An offset past the end would hide everything that was said.
        if not _is_offset(self.last_consolidated, len(self.messages)):
            self.last_consolidated = 0

    def add_message(self, role: str, content: Any, **fields: Any) -> None:
        """Say something now."""
        now = _now()
        self.messages.append(
            {"role": role, "content": content, "timestamp": now.isoformat(), **fields}
        )
        self.updated_at = now

    def get_history(
        self, max_messages: int = 500, *, include_timestamps: bool = False
    ) -> list[dict[str, Any]]:
        """What the model is shown of what is not consolidated: the newest turns, always legal.

        A limit of 0 or less is none. With `include_timestamps` the words of people and of the
        assistant begin with the time they were said at, where that is known.
        """
        offset = self.last_consolidated
        fresh = self.messages[offset if _is_offset(offset, len(self.messages)) else 0 :]
        limit = max_messages if max_messages > 0 else max(1, len(fresh))
        rows, is_whole = _recent(fresh, limit)
        shown = fit(blocks(rows), HistoryBudget(limit), weigher(Style()), whole=is_whole).blocks
        history = [_own(message) for message in render(shown, "openai", Style())]
        if include_timestamps:
            at = 0
            for block in shown:
                _stamp(history[at], block.row.body.get("timestamp"))
                at += block.size
        return history

    def clear(self) -> None:
        """Begin with nothing."""
        self.messages = []
        self.last_consolidated = 0
        self.metadata.pop("_last_summary", None)
        self.updated_at = _now()

    def retain_recent_legal_suffix(self, max_messages: int) -> None:
        """Keep the newest messages, from the person's message that their turn begins with."""
        if max_messages <= 0:
            self.clear()
            return
        if len(self.messages) <= max_messages:
            return
        dropped = _turn_start(self.messages, len(self.messages) - max_messages)
        self.messages = self.messages[dropped:]
        self.last_consolidated = max(0, self.last_consolidated - dropped)
        self.updated_at = _now()


def _is_offset(value: object, length: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= length


def _turn_start(messages: Sequence[Any], cut: int) -> int:
    """Where the turn begins that a cut falls into; the next one where there is none before it."""
    for at in chain(range(cut, -1, -1), range(cut + 1, len(messages))):
        if _role(messages[at]) == USER:
            return at
    # Nobody has spoken: nothing can go before a result, whose call would be lost.
    return next((at for at in range(cut, -1, -1) if _role(messages[at]) != TOOL), 0)


def _recent(messages: Sequence[Any], limit: int) -> tuple[list[Message], bool]:
    """The newest messages as rows, as many as the limit can need; and whether that is all."""
    taken: list[tuple[int, dict[str, Any]]] = []
    count = 0
    has_person = False
    for at in range(len(messages) - 1, -1, -1):
        if count >= limit + _SPARE and has_person:
            break
        body = messages[at]
        role, is_hidden = _role(body), _kind(body) in HIDDEN
        if count >= limit + _SPARE and role not in PEOPLE:
            continue  # the turn is longer than the limit: only its beginning is wanted
        if role in SHOWN and not is_hidden:
            count += 1
            has_person = has_person or role in PEOPLE
            taken.append((at, body))
    taken.reverse()
    is_whole = not taken or taken[0][0] == 0
    return _rows(taken), is_whole


def _rows(taken: Sequence[tuple[int, dict[str, Any]]]) -> list[Message]:
    rows: list[Message] = []
    turn = 0
    for at, body in taken:
        turn += body["role"] == USER
        rows.append(Message(0, at, turn, body["role"], _kind(body), 0, None, body))
    # A result whose call was not taken must not be given to another call.
    first = next((n for n, row in enumerate(rows) if row.role != TOOL), len(rows))
    return rows[first:] if taken and taken[0][0] > 0 else rows


def _role(message: Any) -> str | None:
    role = message.get("role") if isinstance(message, dict) else None
    return role if isinstance(role, str) else None


def _kind(message: Any) -> str | None:
    return kind_of(message) if isinstance(message, dict) else None


def _own(message: dict[str, Any]) -> dict[str, Any]:
    """A message that its reader may change without changing the conversation."""
    return {key: copied(value) for key, value in message.items() if key in KEYS}


def copied(value: Any) -> Any:
    """JSON values copied; texts and numbers cannot change and are shared."""
    if isinstance(value, dict):
        return {key: copied(one) for key, one in value.items()}
    if isinstance(value, list):
        return [copied(one) for one in value]
    return value


def _stamp(message: dict[str, Any], timestamp: object) -> None:
    """Put the time before the words. Where it is told, nobody's words can tell another one."""
    if not isinstance(timestamp, str) or not _TIME.fullmatch(timestamp):
        return
    head, content = f"[Message Time: {timestamp}]", message.get("content")
    if isinstance(content, str) and content:
        message["content"] = f"{head}\n{_unforged(content)}"
    elif isinstance(content, list):
        message["content"] = [{"type": "text", "text": head}, *map(_unforged_part, content)]


def _unforged(text: str) -> str:
    return _FORGED_TIME.sub("(", text)


def _unforged_part(part: dict[str, Any]) -> dict[str, Any]:
    text = part.get("text")
    return {**part, "text": _unforged(text)} if isinstance(text, str) else part
