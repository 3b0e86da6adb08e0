"""The side of another store: a process in its own environment that speaks JSON lines.

It runs with the other store's Python and imports nothing of ours but the text generator.
Requests are `prepare` (set up an operation at a size), `burst` (time it so many times) and
`figure` (one number that the store finds out by itself).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

from benchmarks.measure import timed

Call = Callable[[], object]
Operations = dict[tuple[str, int], Call]


class NotOfferedError(Exception):
    """The other store has no such operation."""


class Talker:
    """An operation is a method that prepares a size and returns the call to be timed."""

    package = ""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, name: str) -> Path:
        """An empty folder for one operation."""
        path = self.root / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        return path

    def turn(self, size: int) -> Call:
        raise NotOfferedError

    def find(self, size: int) -> Call:
        raise NotOfferedError

    def open(self, size: int) -> Call:
        raise NotOfferedError

    def newest(self, size: int) -> Call:
        raise NotOfferedError

    def list(self, size: int) -> Call:
        raise NotOfferedError

    def search(self, size: int) -> Call:
        raise NotOfferedError

    def callers(self, *, callers: int, sessions: int, seconds: float) -> float:
        raise NotOfferedError

    def disk(self, *, turns: int) -> float:
        raise NotOfferedError

    def gateway(self, *, people: int, messages: int, seconds: float, is_bare: float) -> float:
        raise NotOfferedError


def serve(make: Callable[[Path], Talker]) -> None:
    """Answers requests until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the other store prints must not end up among the answers
    talker = make(Path(sys.argv[1]))
    operations: Operations = {}
    _say(answers, {"version": version(talker.package)})
    for line in sys.stdin:
        _say(answers, _answered(talker, operations, json.loads(line)))


def folder_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def _answered(talker: Talker, operations: Operations, request: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"answer": _answer(talker, operations, request)}
    except NotOfferedError:
        return {"not_offered": True}
    except Exception as problem:  # noqa: BLE001 - whatever the other store raises is its result
        return {"problem": f"{type(problem).__name__}: {problem}"}


def _answer(talker: Talker, operations: Operations, request: dict[str, Any]) -> object:
    what = str(request["what"])
    if request["do"] == "figure":
        return getattr(talker, what)(**request["arguments"])
    size = int(request["size"])
    if request["do"] == "prepare":
        operations[what, size] = getattr(talker, what)(size)
        return None
    return timed(operations[what, size], int(request["times"]))


def _say(answers: IO[str], answer: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError):
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
