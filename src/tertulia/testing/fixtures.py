"""A database with any number of handles on it, and the few words the promises are told in."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tertulia.core.settings import Settings
from tertulia.core.source import Source
from tertulia.records.transcript.transcript import Transcript
from tertulia.store import Store
from tertulia.testing.clock import FakeClock

T = TypeVar("T")

Connect = Callable[[Path, Settings, FakeClock], Store]


class Handles:
    """One database. Every `open` gives another handle on it, all on the same clock."""

    def __init__(self, place: Path, connect: Connect, settings: Settings) -> None:
        self.place = place
        self.clock = FakeClock()
        self._connect = connect
        self._settings = settings
        self._handles: list[Store] = []

    def open(self, **settings: Any) -> Store:
        """A new handle; `settings` are changes to those of the stage."""
        chosen = msgspec.structs.replace(self._settings, **settings)
        store = self._connect(self.place, chosen, self.clock)
        self._handles.append(store)
        return store

    def close(self) -> None:
        while self._handles:
            self._handles.pop().close()


def dm(user: str, platform: str = "telegram", **details: Any) -> Source:
    """A private chat with a person."""
    return Source(platform, user, user_id=user, **details)


def said(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def answered(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def turn(text: str) -> list[dict[str, Any]]:
    """A question with its answer."""
    return [said(text), answered(f"re {text}")]


def texts(transcript: Transcript) -> list[str]:
    """What is seen of a transcript, as short as it can be compared."""
    return [message["content"] for message in transcript.load()]


def at_once(*works: Callable[[], T]) -> list[T]:
    """Run all at the same moment, each in its own thread; their results in order.

    What one of them raises is raised here, when all are through.
    """
    start = threading.Barrier(len(works))
    results: dict[int, T] = {}
    problems: list[BaseException] = []

    def run(place: int, work: Callable[[], T]) -> None:
        start.wait()
        try:
            results[place] = work()
        except BaseException as problem:  # noqa: BLE001 — raised again below
            problems.append(problem)

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]
    return [results[place] for place in range(len(works))]


def until(condition: Callable[[], Any], what: str) -> None:
    """Wait for something that is bound to happen, however busy the machine is."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.005)


def outcomes(
    *works: Callable[[], T], refusals: type[Exception]
) -> tuple[list[T], Sequence[Exception]]:
    """The same where some may be refused: the results, and the refusals."""
    refused: list[Exception] = []

    def tried(work: Callable[[], T]) -> Callable[[], list[T]]:
        def run() -> list[T]:
            try:
                return [work()]
            except refusals as problem:
                refused.append(problem)
                return []

        return run

    found = at_once(*(tried(work) for work in works))
    return [item for part in found for item in part], refused
