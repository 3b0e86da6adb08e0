"""The worker of another store: a process in its own environment that reads and writes JSON lines.

It runs with the other store's Python and imports only the text generator and the timer of ours.
Requests are `prepare` (prepare an operation at a size), `burst` (time it `times` times) and
`figure` (return one number that the store measures itself).
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


class PeerStore:
    """The operations of a store; each method prepares a size and returns the call to time."""

    package = ""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, name: str) -> Path:
        """Return an empty folder for one operation."""
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


def serve(make: Callable[[Path], PeerStore]) -> None:
    """Answer requests until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # output of the other store must not mix with the answers
    peer_store = make(Path(sys.argv[1]))
    operations: Operations = {}
    _write(answers, {"version": version(peer_store.package)})
    for line in sys.stdin:
        _write(answers, _try_answer(peer_store, operations, json.loads(line)))


def folder_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def _try_answer(
    peer_store: PeerStore, operations: Operations, request: dict[str, Any]
) -> dict[str, Any]:
    try:
        return {"answer": _answer(peer_store, operations, request)}
    except NotOfferedError:
        return {"not_offered": True}
    except Exception as problem:  # noqa: BLE001 - any error of the other store is its result
        return {"problem": f"{type(problem).__name__}: {problem}"}


def _answer(peer_store: PeerStore, operations: Operations, request: dict[str, Any]) -> object:
    what = str(request["what"])
    if request["do"] == "figure":
        return getattr(peer_store, what)(**request["arguments"])
    size = int(request["size"])
    if request["do"] == "prepare":
        operations[what, size] = getattr(peer_store, what)(size)
        return None
    return timed(operations[what, size], int(request["times"]))


def _write(answers: IO[str], answer: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError):
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
