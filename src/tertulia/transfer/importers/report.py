"""The report of an import: its counts, and every problem with its file and line."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

# Reported problems of one kind in one file. A binary file of a gigabyte has millions of lines.
_MOST = 200
_LONGEST = 300

# A problem of one of these kinds means that a whole file could not be read.
UNREADABLE = "unreadable"
UNREAD = frozenset(("database_damaged", UNREADABLE))


class Problem(msgspec.Struct, frozen=True):
    """A defect of the source; `file` is relative to the imported folder."""

    file: str
    line: int | None
    kind: str
    detail: str


class Report(msgspec.Struct, frozen=True):
    """Imported sessions and messages, sessions skipped because the store has them, and problems."""

    sessions: int = 0
    messages: int = 0
    skipped: int = 0
    problems: tuple[Problem, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Return whether every file could be read to its end."""
        return not any(problem.kind in UNREAD for problem in self.problems)

    @property
    def is_complete(self) -> bool:
        """Return whether every file could be opened; one that could not may be another time."""
        return not any(problem.kind == UNREADABLE for problem in self.problems)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        values: dict[str, Any] = msgspec.to_builtins(self)
        return values


class Findings:
    """Collects problems; keeps the first 200 of a kind in a file and counts the rest."""

    def __init__(self) -> None:
        self._problems: list[Problem] = []
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, file: str, line: int | None, kind: str, detail: str) -> None:
        """Report a problem."""
        self._counts[file, kind] += 1
        if self._counts[file, kind] <= _MOST:
            printable = detail.encode("utf-8", "backslashreplace").decode()
            self._problems.append(Problem(file, line, kind, printable[:_LONGEST]))

    def all(self) -> tuple[Problem, ...]:
        """Return every problem, and one more for each kind that had too many."""
        more = [
            Problem(file, None, kind, f"and {count - _MOST} more like these in this file")
            for (file, kind), count in self._counts.items()
            if count > _MOST
        ]
        return (*self._problems, *more)


class PrefixedFindings(Findings):
    """Passes problems on, each with a prefix that names the session it belongs to."""

    def __init__(self, findings: Findings, prefix: str) -> None:
        super().__init__()
        self._findings = findings
        self._prefix = prefix

    def add(self, file: str, line: int | None, kind: str, detail: str) -> None:
        """Report a problem with the prefix."""
        self._findings.add(file, line, kind, f"{self._prefix}{detail}")
