"""What an import did, and everything it could not read, with its place."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

# Of one kind in one file. A file of a gigabyte that is no text has millions of lines.
_MOST = 200
_LONGEST = 300

# Where one of these stands in a report, a file as a whole could not be read.
UNREAD = frozenset(("database_damaged", "unreadable"))


class Problem(msgspec.Struct, frozen=True):
    """Something that was not as it should be; `file` is relative to the folder that was given."""

    file: str
    line: int | None
    kind: str
    detail: str


class Report(msgspec.Struct, frozen=True):
    """How many sessions and messages came, how many sessions were here before, and what was odd."""

    sessions: int = 0
    messages: int = 0
    skipped: int = 0
    problems: tuple[Problem, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether every file could be read to its end."""
        return not any(problem.kind in UNREAD for problem in self.problems)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


class Findings:
    """Problems as they are found."""

    def __init__(self) -> None:
        self._found: list[Problem] = []
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, file: str, line: int | None, kind: str, detail: str) -> None:
        self._counts[file, kind] += 1
        if self._counts[file, kind] <= _MOST:
            shown = detail.encode("utf-8", "backslashreplace").decode()
            self._found.append(Problem(file, line, kind, shown[:_LONGEST]))

    def all(self) -> tuple[Problem, ...]:
        """Every problem, and for each kind of which there were too many how many more."""
        more = [
            Problem(file, None, kind, f"and {count - _MOST} more like these in this file")
            for (file, kind), count in self._counts.items()
            if count > _MOST
        ]
        return (*self._found, *more)


class ProblemList(Findings):
    """The same, with a word on what each is about."""

    def __init__(self, findings: Findings, about: str) -> None:
        super().__init__()
        self._findings = findings
        self._about = about

    def add(self, file: str, line: int | None, kind: str, detail: str) -> None:
        self._findings.add(file, line, kind, f"{self._about}{detail}")
