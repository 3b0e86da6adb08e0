"""The thread that brings the search index up to date behind the turns.

It starts with the first message a store is given, waits until the writers are quiet, and yields to
them: after each step it rests as long as the step took, and longer. A process that ends leaves the
rest to whoever opens the store next, for what is not indexed yet is written in the store itself.
"""

from __future__ import annotations

import threading
import time
import weakref

from tertulia.errors import Error
from tertulia.records.search import Search, log

# Messages come in bursts; one step for a burst costs less than one for each message.
_QUIET_SECONDS = 0.25
# Under load without a pause the index must not fall behind for ever.
_LAG_SECONDS = 5.0
_REST = 3.0


class Indexer:
    """Calls `Search.catch_up` in the background."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self._wake = threading.Event()
        self._stops = False
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._rung_at = 0.0

    def notify(self) -> None:
        """There is something to index. Called after every write, so it costs next to nothing."""
        self._rung_at = time.monotonic()
        if not self._wake.is_set():
            if self._thread is None:
                self._start()
            self._wake.set()

    def stop(self) -> None:
        self._stops = True
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._stops:
                wake = self._wake
                # The thread must not keep alive a store that nobody uses any more, nor outlive it.
                owner = weakref.ref(self, lambda _: wake.set())
                thread = threading.Thread(
                    target=_run, args=(owner, wake), name="tertulia-index", daemon=True
                )
                # An interrupt can come within: a thread that may not have started is never joined.
                thread.start()
                self._thread = thread

    def work(self) -> bool:
        """Wait for quiet, then index; whether to go on."""
        waited = time.monotonic()
        while not self._stops:
            now = time.monotonic()
            if now - self._rung_at >= _QUIET_SECONDS or now - waited >= _LAG_SECONDS:
                break
            time.sleep(0.05)
        self._wake.clear()
        while not self._stops:
            began = time.monotonic()
            try:
                if self._search.catch_up(steps=1):
                    break
            except Error:
                # Messages are stored and read all the same; the next one rings again.
                log.exception("the search index could not be brought up to date")
                break
            time.sleep(_REST * (time.monotonic() - began))
        return not self._stops


def _run(indexer: weakref.ref[Indexer], wake: threading.Event) -> None:
    while wake.wait():
        found = indexer()
        if found is None or not found.work():
            return
        del found
