"""Notifications on channels: a waiter is woken instead of polling the database all the time."""

from __future__ import annotations

import threading
import weakref
from collections import Counter

_notifiers: weakref.WeakValueDictionary[str, Notifier] = weakref.WeakValueDictionary()
_lock = threading.Lock()


class Notifier:
    """The notifications of one database that reach this process."""

    def __init__(self) -> None:
        self._notifications: Counter[str] = Counter()
        self._changed = threading.Condition()

    def notify(self, channel: str) -> None:
        """Wake the waiters on a channel."""
        with self._changed:
            self._notifications[channel] += 1
            self._changed.notify_all()

    def notifications(self, channel: str) -> int:
        """Return how many notifications a channel has had."""
        return self._notifications[channel]

    def wait(self, channel: str, since: int, seconds: float) -> bool:
        """Wait until there are more than `since` notifications; return False after `seconds`."""
        with self._changed:
            return self._changed.wait_for(lambda: self._notifications[channel] > since, seconds)


def notifier_of(database: str) -> Notifier:
    """Return the notifier of a database, the same one for every handle of this process."""
    with _lock:
        notifier = _notifiers.get(database)
        if notifier is None:
            notifier = _notifiers[database] = Notifier()
        return notifier
