"""Turn the values in a transcript file into messages in the OpenAI chat form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tertulia.transfer.importers.model import UNKNOWN
from tertulia.transfer.importers.report import Findings
from tertulia.transfer.importers.timestamps import TimestampParser


class MessageNormaliser:
    """Recognises which values of one file are messages, and reads their times."""

    def __init__(self, file: str, findings: Findings, timestamps: TimestampParser) -> None:
        self._file = file
        self._findings = findings
        self._timestamps = timestamps
        self._form: str | None = None
        self._is_mixed = False

    def message(self, line: int | None, value: Any) -> dict[str, Any] | None:
        """Return the message in a value, or None (and report a problem) if it is not a message."""
        if not isinstance(value, dict) or not value:
            detail = f"not a message: {_excerpt(value)}"
            self._findings.add(self._file, line, "not_a_message", detail)
            return None
        role = value.get("role")
        if type(role) is str and role in _ROLES and _is_content(value.get("content")):
            return value
        return self._keep_unusual(line, value)

    def at(self, line: int | None, value: object) -> int | None:
        """Return the time of a row in microseconds, or None if it has none or it is invalid."""
        if value is None:
            return None
        timestamp = self._timestamps.parse(value)
        if timestamp is None:
            detail = f"not a time: {_excerpt(value)}"
            self._findings.add(self._file, line, "unparseable_timestamp", detail)
            return None
        if timestamp.form != self._form:
            if self._form is not None and not self._is_mixed:
                self._is_mixed = True
                detail = f"times {self._form} and {timestamp.form} in one file"
                self._findings.add(self._file, line, "mixed_timestamps", detail)
            self._form = timestamp.form
        return timestamp.micros

    def _keep_unusual(self, line: int | None, value: dict[str, Any]) -> dict[str, Any]:
        """Report a message whose role or content is unusual, and return it with a valid role."""
        self._findings.add(self._file, line, "odd_message", f"kept as it is: {_excerpt(value)}")
        role = value.get("role")
        if isinstance(role, str) and role:
            return value
        message = {
            "role": UNKNOWN,
            **{name: part for name, part in value.items() if name != "role"},
        }
        return message if role is None else {**message, "role_given": role}


_ROLES = frozenset(("user", "assistant", "tool", "system", "summary"))


def _is_content(content: object) -> bool:
    if content is None or type(content) is str:
        return True
    if not isinstance(content, list):
        return False
    return all(isinstance(part, Mapping) and _is_part(part) for part in content)


def _is_part(part: Mapping[str, Any]) -> bool:
    kind = part.get("type")
    return isinstance(kind, str) and (kind != "text" or isinstance(part.get("text"), str))


def _excerpt(value: object) -> str:
    return json.dumps(value, ensure_ascii=True, default=str)[:120]
