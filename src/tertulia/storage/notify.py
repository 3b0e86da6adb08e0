"""Bells: whoever waits for something in the database is woken instead of asking all the time."""

from __future__ import annotations

import threading
import weakref
from collections import Counter

_bells: weakref.WeakValueDictionary[str, Bells] = weakref.WeakValueDictionary()
_lock = threading.Lock()


class Bells:
    """The bells of one database, as far as this process hears them."""

    def __init__(self) -> None:
        self._rung: Counter[str] = Counter()
        self._changed = threading.Condition()

    def ring(self, bell: str) -> None:
        with self._changed:
            self._rung[bell] += 1
            self._changed.notify_all()

    def rung(self, bell: str) -> int:
        return self._rung[bell]

    def wait(self, bell: str, since: int, seconds: float) -> bool:
        """Whether it rang in that time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._rung[bell] > since, seconds)


def bells_of(database: str) -> Bells:
    """The bells of a database, the same for every handle of this process."""
    with _lock:
        found = _bells.get(database)
        if found is None:
            found = _bells[database] = Bells()
        return found
