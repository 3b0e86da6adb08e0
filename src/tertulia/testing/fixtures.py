"""Test fixtures: several handles on one database, messages, and calls in parallel threads."""

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
from tertulia.testing.fake_clock import FakeClock

T = TypeVar("T")

Connect = Callable[[Path, Settings, FakeClock], Store]


class Handles:
    """One database; every `open` returns another handle on it, all with the same clock."""

    def __init__(self, folder: Path, connect: Connect, settings: Settings) -> None:
        self.place = folder
        self.clock = FakeClock()
        self._connect = connect
        self._settings = settings
        self._handles: list[Store] = []

    def open(self, **settings: Any) -> Store:
        """Open a new handle; `settings` replace fields of the default settings."""
        handle_settings = msgspec.structs.replace(self._settings, **settings)
        store = self._connect(self.place, handle_settings, self.clock)
        self._handles.append(store)
        return store

    def close(self) -> None:
        while self._handles:
            self._handles.pop().close()


def dm(user: str, platform: str = "telegram", **details: Any) -> Source:
    """Return the source of a private chat with a user."""
    return Source(platform, user, user_id=user, **details)


def user_message(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant_message(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def turn(text: str) -> list[dict[str, Any]]:
    """Return a question with its answer."""
    return [user_message(text), assistant_message(f"re {text}")]


def texts(transcript: Transcript) -> list[str]:
    """Return the contents of the visible messages of a transcript."""
    return [message["content"] for message in transcript.load()]


def run_in_threads(*works: Callable[[], T]) -> list[T]:
    """Run all calls at the same time, each in its own thread, and return the results in order.

    If a call raises, its error is raised here after all have finished.
    """
    start = threading.Barrier(len(works))
    results: dict[int, T] = {}
    problems: list[BaseException] = []

    def run(index: int, work: Callable[[], T]) -> None:
        start.wait()
        try:
            results[index] = work()
        except BaseException as problem:  # noqa: BLE001 — raised again below
            problems.append(problem)

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]
    return [results[index] for index in range(len(works))]


def wait_until(condition: Callable[[], Any], what: str) -> None:
    """Wait until a condition is true; fail after 60 seconds, enough for a busy machine."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"timed out waiting for: {what}"
        time.sleep(0.005)


def run_out(queue: Any, entry: Any) -> None:
    """Let the claim of an entry of a queue expire by the database clock."""
    queue.renew(entry, lease_seconds=0.001)
    time.sleep(0.02)


def outcomes(
    *works: Callable[[], T], refusals: type[Exception]
) -> tuple[list[T], Sequence[Exception]]:
    """Run all calls at the same time; return the results and the `refusals` that were raised."""
    refused: list[Exception] = []

    def catch_refusal(work: Callable[[], T]) -> Callable[[], list[T]]:
        def run() -> list[T]:
            try:
                return [work()]
            except refusals as problem:
                refused.append(problem)
                return []

        return run

    parts = run_in_threads(*(catch_refusal(work) for work in works))
    return [result for part in parts for result in part], refused
