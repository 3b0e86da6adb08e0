"""Bells: whoever waits for something in the database is woken instead of asking all the time."""

from __future__ import annotations

import threading
import weakref
from collections import Counter

_notifiers: weakref.WeakValueDictionary[str, Notifier] = weakref.WeakValueDictionary()
_lock = threading.Lock()


class Notifier:
    """The bells of one database, as far as this process hears them."""

    def __init__(self) -> None:
        self._notifications: Counter[str] = Counter()
        self._changed = threading.Condition()

    def notify(self, channel: str) -> None:
        with self._changed:
            self._notifications[channel] += 1
            self._changed.notify_all()

    def notifications(self, channel: str) -> int:
        return self._notifications[channel]

    def wait(self, channel: str, since: int, seconds: float) -> bool:
        """Whether it rang in that time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._notifications[channel] > since, seconds)


def notifier_of(database: str) -> Notifier:
    """The bells of a database, the same for every handle of this process."""
    with _lock:
        found = _notifiers.get(database)
        if found is None:
            found = _notifiers[database] = Notifier()
        return found
