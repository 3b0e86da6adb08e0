"""Rows of a transcript in the OpenAI chat form, from whatever a line holds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tertulia.transfer.importers.model import UNKNOWN
from tertulia.transfer.importers.report import Findings
from tertulia.transfer.importers.timestamps import TimestampParser


class MessageNormaliser:
    """Tells which values are messages, and when they were said."""

    def __init__(self, file: str, findings: Findings, moments: TimestampParser) -> None:
        self._file = file
        self._findings = findings
        self._moments = moments
        self._form: str | None = None
        self._is_mixed = False

    def message(self, line: int | None, value: Any) -> dict[str, Any] | None:
        """The message in a value; None, and told, if there is none."""
        if not isinstance(value, dict) or not value:
            told = f"no message: {_shown(value)}"
            self._findings.add(self._file, line, "not_a_message", told)
            return None
        role = value.get("role")
        if type(role) is str and role in _USUAL and _is_content(value.get("content")):
            return value
        return self._odd(line, value)

    def at(self, line: int | None, value: object) -> int | None:
        """The time of a row; None where there is none."""
        if value is None:
            return None
        found = self._moments.read(value)
        if found is None:
            told = f"no time: {_shown(value)}"
            self._findings.add(self._file, line, "unparseable_timestamp", told)
            return None
        if found.form != self._form:
            if self._form is not None and not self._is_mixed:
                self._is_mixed = True
                told = f"times {self._form} and {found.form} in one file"
                self._findings.add(self._file, line, "mixed_timestamps", told)
            self._form = found.form
        return found.micros

    def _odd(self, line: int | None, value: dict[str, Any]) -> dict[str, Any]:
        """A message that is kept though something in it is not as it should be."""
        self._findings.add(self._file, line, "odd_message", f"kept as it is: {_shown(value)}")
        role = value.get("role")
        if isinstance(role, str) and role:
            return value
        kept = {"role": UNKNOWN, **{name: part for name, part in value.items() if name != "role"}}
        return kept if role is None else {**kept, "role_given": role}


_USUAL = frozenset(("user", "assistant", "tool", "system", "summary"))


def _is_content(content: object) -> bool:
    if content is None or type(content) is str:
        return True
    if not isinstance(content, list):
        return False
    return all(isinstance(part, Mapping) and _is_part(part) for part in content)


def _is_part(part: Mapping[str, Any]) -> bool:
    kind = part.get("type")
    return isinstance(kind, str) and (kind != "text" or isinstance(part.get("text"), str))


def _shown(value: object) -> str:
    return json.dumps(value, ensure_ascii=True, default=str)[:120]
