"""Redact a session for export: ids and phone numbers become pseudonyms, or nothing changes.

It uses the same redactor as prompts and logs. Programs can still read the messages: ids that join a
tool call to its result, signatures and image data stay, and arguments stay JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tertulia.core.message import Message, from_json
from tertulia.core.session import Session
from tertulia.core.text.display_safe import display_line, display_text
from tertulia.core.text.redact import Redactor

_LONGEST_NAME = 160
_UNCHANGED = frozenset(
    ("id", "tool_call_id", "call_id", "role", "type", "signature", "data", "file_data")
)


class Redaction:
    """Redacts the parts of one session; without a redactor it returns them unchanged."""

    def __init__(self, session: Session, redactor: Redactor | None) -> None:
        self._source = session.origin
        self._redactor = redactor

    def text(self, text: str) -> str:
        """Return a text of several lines, safe to display."""
        return display_text(self._redact_text(text))

    def name(self, text: str) -> str:
        """Return a name or a title on one line."""
        if self._redactor is not None:
            text = self._redactor.name(self._source.platform, text, source=self._source)
        return display_line(text, _LONGEST_NAME)

    def person(self, platform: str, user_id: str) -> str:
        """Return a user id, or its pseudonym."""
        return user_id if self._redactor is None else self._redactor.user(platform, user_id)

    def body(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a message body."""
        return body if self._redactor is None else self._redact_value(body)

    def author(self, message: Message) -> str | None:
        """Return the author of a message in the stored JSON form, or None."""
        if self._redactor is None or message.author is None:
            return message.author
        author = from_json(message.author)
        user_id, name = author.get("id"), author.get("name")
        if isinstance(user_id, str):
            author["id"] = self.person(str(author.get("platform") or ""), user_id)
        if isinstance(name, str):
            author["name"] = self.name(name)
        return json.dumps(author, ensure_ascii=False)

    def session(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of the session, in the same order."""
        if self._redactor is None:
            return fields
        unchanged = ("id", "parent_id", "created_at", "updated_at", "ended_at", "usage")
        redacted: dict[str, Any] = {
            name: value if name in unchanged else self._redact_value(value, name)
            for name, value in fields.items()
        }
        origin = fields["origin"].items()
        redacted["origin"] = {name: self._redact_origin(name, value) for name, value in origin}
        redacted["key"] = self._redactor.key(fields["key"])
        return redacted

    def _redact_origin(self, name: str, value: Any) -> Any:
        if not isinstance(value, str) or self._redactor is None:
            return value
        platform = self._source.platform
        if name in ("user_id", "user_id_alt"):
            return self._redactor.user(platform, value)
        if name in ("chat_id", "chat_id_alt"):
            return self._redactor.chat(platform, value)
        if name == "thread_id":
            return self._redactor.thread(platform, value)
        return value if name in ("platform", "chat_type") else self._redact_text(value)

    def _redact_text(self, text: str) -> str:
        if self._redactor is None:
            return text
        return self._redactor.text(text, source=self._source)

    def _redact_value(self, value: Any, name: str = "") -> Any:
        if isinstance(value, Mapping):
            return {field: self._redact_value(inner, field) for field, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self._redact_value(inner, name) for inner in value]
        if name in _UNCHANGED or isinstance(value, bool | float) or value is None:
            return value
        if isinstance(value, int):
            text = self._redact_text(str(value))
            return value if text == str(value) else text
        if not isinstance(value, str) or value.startswith("data:"):
            return value
        return self._redact_arguments(value) if name == "arguments" else self._redact_text(value)

    def _redact_arguments(self, text: str) -> str:
        """Redact the JSON arguments of a call; a number in them may be a phone number."""
        try:
            arguments = json.loads(text)
        except ValueError:
            return self._redact_text(text)
        return json.dumps(self._redact_value(arguments), ensure_ascii=False)
