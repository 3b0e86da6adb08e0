"""Files of other systems, written for one test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tertulia.transfer import Report

ODD: list[Any] = [None, True, -1, 1.5, 10**30, 1e400, "", "\ud800", "\0", [], {}, [[[]]], {"a": {}}]


HEAD = {
    "_type": "metadata",
    "key": "telegram:42",
    "created_at": "2026-03-01T10:00:00",
    "updated_at": "2026-03-01T11:00:00",
    "metadata": {},
    "last_consolidated": 0,
}


HELLO = {"role": "user", "content": "hello", "timestamp": "2026-03-01T10:00:01"}


def write(path: Path, *rows: Any) -> None:
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    path.write_bytes(b"\n".join(lines) + b"\n")


def kinds(report: Report) -> set[str]:
    return {problem.kind for problem in report.problems}
