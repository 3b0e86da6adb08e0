"""The turns of one process on one database.

Nothing here decides whether a turn may enter: the database does. `LocalTurns` holds back a turn
while another one of this process is still inside its `with` block, wakes waiting turns so that
they need not poll the database all the time, and renews leases during long calls.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Protocol

from tertulia.storage.base import Database

_by_database: weakref.WeakValueDictionary[str, LocalTurns] = weakref.WeakValueDictionary()
_by_database_lock = threading.Lock()


class LeaseHolder(Protocol):
    """A turn that is inside its block."""

    def renew(self) -> bool:
        """Prolong the lease; return whether the turn still has its session."""

    def uses(self, db: Database) -> bool:
        """Return whether the turn reads and writes through that handle."""

    def leave(self, *, failed: bool = False) -> None:
        """Leave the session, so that the next turn can enter."""


class LocalTurns:
    """The turns of this process on one database."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders: dict[str, tuple[LeaseHolder, float, str]] = {}
        self._session_of: dict[str, str] = {}  # a conversation's key -> the session last entered
        self._listeners: dict[str, list[Callable[[], None]]] = {}
        self._interval_changed = threading.Event()
        self._interval: float | None = None  # of the renewing thread; None if none is running

    def has_turn_in(self, session_id: str) -> bool:
        """Return whether a turn of this process is inside that session."""
        return session_id in self._holders

    def has_turn_of(self, key: str) -> bool:
        """Return whether a turn of this process is inside the session of that key."""
        return self._session_of.get(key) in self._holders

    def add(self, session_id: str, holder: LeaseHolder, renew_every: float, *, key: str) -> None:
        """Note that a turn is inside, and renew its lease every `renew_every` seconds."""
        with self._lock:
            self._holders[session_id] = holder, renew_every, key
            self._session_of[key] = session_id
            interval = self._interval
            if interval is None or renew_every < interval:
                self._interval = renew_every
        if interval is None:
            threading.Thread(target=self._renew, name="tertulia-leases", daemon=True).start()
        elif renew_every < interval:
            self._interval_changed.set()

    def remove(self, session_id: str, holder: LeaseHolder, key: str) -> None:
        """Note that a turn has left, and wake the turns that wait for its conversation."""
        self._drop(session_id, holder)
        with self._lock:
            listeners = list(self._listeners.get(key, ()))
        for wake in listeners:
            wake()

    def leave_all_of(self, db: Database) -> None:
        """Leave the turns of a handle that is about to be closed; each ends like a failed one."""
        for holder, _, _ in list(self._holders.values()):
            if holder.uses(db):
                holder.leave(failed=True)

    def add_listener(self, key: str, wake: Callable[[], None]) -> None:
        """Call `wake` whenever a turn leaves that conversation."""
        with self._lock:
            self._listeners.setdefault(key, []).append(wake)

    def remove_listener(self, key: str, wake: Callable[[], None]) -> None:
        """Undo `add_listener`."""
        with self._lock:
            listeners = self._listeners.get(key, [])
            if wake in listeners:
                listeners.remove(wake)
            if not listeners:
                self._listeners.pop(key, None)

    def _drop(self, session_id: str, holder: LeaseHolder) -> None:
        with self._lock:
            if session_id in self._holders and self._holders[session_id][0] is holder:
                key = self._holders.pop(session_id)[2]
                if self._session_of.get(key) == session_id:
                    del self._session_of[key]

    def _renew(self) -> None:
        """Renew until no turn is inside.

        The thread ends after an interval without any, so that short turns share one thread.
        """
        while (interval := self._next_interval()) is not None:
            if self._interval_changed.wait(interval):
                self._interval_changed.clear()
                continue
            for session_id, (holder, _, _) in list(self._holders.items()):
                if not holder.renew():
                    self._drop(session_id, holder)

    def _next_interval(self) -> float | None:
        with self._lock:
            self._interval = min(
                (renew_every for _, renew_every, _ in self._holders.values()), default=None
            )
            return self._interval


def local_turns_of(database: str) -> LocalTurns:
    """Return the turns of this process on a database, the same object for every handle."""
    with _by_database_lock:
        local_turns = _by_database.get(database)
        if local_turns is None:
            local_turns = _by_database[database] = LocalTurns()
        return local_turns


def _reset_after_fork() -> None:
    """Forget the turns of the parent process; the thread that renews them is not in the child."""
    global _by_database_lock  # noqa: PLW0603 — a thread of the parent may have held it
    _by_database_lock = threading.Lock()
    _by_database.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
