"""What may leave the store of a session: all of it, or all but ids and phone numbers.

The same redactor as for prompts and logs. What was said is kept readable by programs: ids that join
a call to its result, signatures and the data of pictures stay, and arguments stay JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tertulia.core.message import Message, from_json
from tertulia.core.session import Session
from tertulia.core.text.display_safe import (
    harmless,
    one_line,
)
from tertulia.core.text.redact import Redactor

_LONGEST_NAME = 160
_STAY = frozenset(
    ("id", "tool_call_id", "call_id", "role", "type", "signature", "data", "file_data")
)


class Redaction:
    """How a session is shown; without a redactor, as it is."""

    def __init__(self, session: Session, redactor: Redactor | None) -> None:
        self._source = session.origin
        self._redactor = redactor

    def text(self, text: str) -> str:
        """A text of several lines, harmless where it is shown."""
        return harmless(self._hidden(text))

    def name(self, text: str) -> str:
        """A name or a title, on one line."""
        if self._redactor is not None:
            text = self._redactor.name(self._source.platform, text, source=self._source)
        return one_line(text, _LONGEST_NAME)

    def person(self, platform: str, user_id: str) -> str:
        return user_id if self._redactor is None else self._redactor.user(platform, user_id)

    def body(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """A message as it was given."""
        return body if self._redactor is None else self._veiled(body)

    def author(self, message: Message) -> str | None:
        """Who wrote it, as stored."""
        if self._redactor is None or message.author is None:
            return message.author
        who = from_json(message.author)
        user_id, name = who.get("id"), who.get("name")
        if isinstance(user_id, str):
            who["id"] = self.person(str(who.get("platform") or ""), user_id)
        if isinstance(name, str):
            who["name"] = self.name(name)
        return json.dumps(who, ensure_ascii=False)

    def session(self, plain: dict[str, Any]) -> dict[str, Any]:
        """The fields of the session."""
        if self._redactor is None:
            return plain
        kept = {name: plain[name] for name in ("id", "parent_id", "created_at", "updated_at")}
        kept["ended_at"] = plain["ended_at"]
        origin = {name: self._part(name, value) for name, value in plain["origin"].items()}
        hidden = self._veiled({n: v for n, v in plain.items() if n not in kept and n != "usage"})
        found = {**hidden, **kept, "usage": plain["usage"], "origin": origin}
        found["key"] = self._redactor.key(plain["key"])
        return {name: found[name] for name in plain}

    def _part(self, name: str, value: Any) -> Any:
        if not isinstance(value, str) or self._redactor is None:
            return value
        platform = self._source.platform
        if name in ("user_id", "user_id_alt"):
            return self._redactor.user(platform, value)
        if name in ("chat_id", "chat_id_alt"):
            return self._redactor.chat(platform, value)
        if name == "thread_id":
            return self._redactor.thread(platform, value)
        return value if name in ("platform", "chat_type") else self._hidden(value)

    def _hidden(self, text: str) -> str:
        if self._redactor is None:
            return text
        return self._redactor.text(text, source=self._source)

    def _veiled(self, value: Any, name: str = "") -> Any:
        if isinstance(value, Mapping):
            return {field: self._veiled(inner, field) for field, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self._veiled(inner, name) for inner in value]
        if name in _STAY or isinstance(value, bool | float) or value is None:
            return value
        if isinstance(value, int):
            hidden = self._hidden(str(value))
            return value if hidden == str(value) else hidden
        if not isinstance(value, str) or value.startswith("data:"):
            return value
        return self._arguments(value) if name == "arguments" else self._hidden(value)

    def _arguments(self, text: str) -> str:
        """Arguments of a call are JSON in a text; a number in them may be a phone's."""
        try:
            given = json.loads(text)
        except ValueError:
            return self._hidden(text)
        return json.dumps(self._veiled(given), ensure_ascii=False)
