"""The background thread that updates the search index and the usage totals after the turns.

It starts with the first message that a store is given, waits until writers pause, and gives way to
them: after each step it sleeps three times as long as the step took. The store itself records which
messages are not indexed yet, so the next process that opens it continues where this one ended.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable

from tertulia.errors import Error
from tertulia.records.search import Search, log

# Messages come in bursts; one step for a burst costs less than a step for each message.
_QUIET_SECONDS = 0.25
# Under constant load there is no pause; index after this time anyway.
_MAX_LAG_SECONDS = 5.0
_SLEEP_FACTOR = 3.0


class Indexer:
    """A thread that calls `roll_up`, and `Search.catch_up` when the totals are up to date.

    Both do a step, and return whether nothing is left.
    """

    def __init__(self, search: Search, roll_up: Callable[[], bool] = lambda: True) -> None:
        self._search = search
        self._roll_up = roll_up
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._notified_at = 0.0
        self._has_begun = False

    def notify(self) -> None:
        """Wake the thread: there is something to index. Cheap, because every write calls it."""
        self._notified_at = time.monotonic()
        if not self._wake.is_set():
            if self._thread is None:
                self._start()
            self._wake.set()

    def stop(self) -> None:
        """End the thread after its current step, and wait for it."""
        self._stopping.set()
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._stopping.is_set():
                wake = self._wake
                # A weak reference: the thread must neither keep an unused store alive nor outlive
                # it. When the store is collected, the callback wakes the thread, which then ends.
                owner = weakref.ref(self, lambda _: wake.set())
                thread = threading.Thread(
                    target=_run, args=(owner, wake), name="tertulia-index", daemon=True
                )
                # Assigned after start(): if an interrupt comes in between, stop() must not join a
                # thread that may not have started.
                thread.start()
                self._thread = thread

    def work(self) -> bool:
        """Wait until writers pause, then index; return whether the thread should continue."""
        if not self._has_begun:
            # A process that ends soon never comes to the rest, and there may be many of these.
            self._has_begun = True
            self._try(self._roll_up)
        waiting_since = time.monotonic()
        while not self._stopping.is_set():
            now = time.monotonic()
            if now - self._notified_at >= _QUIET_SECONDS or now - waiting_since >= _MAX_LAG_SECONDS:
                break
            self._stopping.wait(0.05)
        self._wake.clear()
        while not self._stopping.is_set():
            began = time.monotonic()
            if self._try(lambda: self._roll_up() and self._search.catch_up(steps=1)):
                break
            # A pause that `stop` ends: closing a store must not wait for it.
            self._stopping.wait(_SLEEP_FACTOR * (time.monotonic() - began))
        return not self._stopping.is_set()

    def _try(self, step: Callable[[], bool]) -> bool:
        """Return whether a step has left nothing to do, or failed."""
        try:
            return step()
        except Error:
            # Messages are stored and read all the same; the next write wakes the thread again.
            log.exception("search index or usage totals not updated, retrying after the next write")
            return True


def _run(indexer: weakref.ref[Indexer], wake: threading.Event) -> None:
    while wake.wait():
        live_indexer = indexer()
        if live_indexer is None or not live_indexer.work():
            return
        del live_indexer  # no strong reference while waiting
