"""What turns of one process know of each other, for one database.

None of it decides anything: whether a turn may enter is decided in the database. The desk holds
back a turn while another of this process is still inside its `with` block, wakes whoever waits
without their having to ask the database again and again, and renews leases during long calls.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Protocol

_desks: weakref.WeakValueDictionary[str, LocalTurns] = weakref.WeakValueDictionary()
_desks_lock = threading.Lock()


class LeaseHolder(Protocol):
    """A turn that is inside its block."""

    def renew(self) -> bool:
        """Prolong the lease; whether the session is still this turn's."""


class LocalTurns:
    """The turns of this process on one database."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, tuple[LeaseHolder, float]] = {}
        self._listeners: dict[str, list[Callable[[], None]]] = {}
        self._hurry = threading.Event()
        self._pause: float | None = None  # of the thread that renews; None where there is none

    def holds(self, session_id: str) -> bool:
        """Whether a turn of this process is inside that session."""
        return session_id in self._held

    def take(self, session_id: str, holder: LeaseHolder, every: float) -> None:
        """A turn is inside from now on; its lease is renewed `every` so many seconds."""
        with self._lock:
            self._held[session_id] = holder, every
            pause = self._pause
            if pause is None or every < pause:
                self._pause = every
        if pause is None:
            threading.Thread(target=self._renew, name="tertulia-leases", daemon=True).start()
        elif every < pause:
            self._hurry.set()

    def leave(self, session_id: str, holder: LeaseHolder, key: str) -> None:
        self._drop(session_id, holder)
        with self._lock:
            listeners = list(self._listeners.get(key, ()))
        for wake in listeners:
            wake()

    def listen(self, key: str, wake: Callable[[], None]) -> None:
        with self._lock:
            self._listeners.setdefault(key, []).append(wake)

    def ignore(self, key: str, wake: Callable[[], None]) -> None:
        with self._lock:
            listeners = self._listeners.get(key, [])
            if wake in listeners:
                listeners.remove(wake)
            if not listeners:
                self._listeners.pop(key, None)

    def _drop(self, session_id: str, holder: LeaseHolder) -> None:
        with self._lock:
            if session_id in self._held and self._held[session_id][0] is holder:
                del self._held[session_id]

    def _renew(self) -> None:
        """Renew until nobody is inside; in the next pause, so that short turns share a thread."""
        while (pause := self._next_pause()) is not None:
            if self._hurry.wait(pause):
                self._hurry.clear()
                continue
            for session_id, (holder, _) in list(self._held.items()):
                if not holder.renew():
                    self._drop(session_id, holder)

    def _next_pause(self) -> float | None:
        with self._lock:
            self._pause = min((every for _, every in self._held.values()), default=None)
            return self._pause


def local_turns_of(database: str) -> LocalTurns:
    """The desk of a database, the same one for every handle of this process."""
    with _desks_lock:
        found = _desks.get(database)
        if found is None:
            found = _desks[database] = LocalTurns()
        return found


def _begin_anew() -> None:
    """A forked process has none of its parent's turns, nor the thread that renews them."""
    global _desks_lock  # noqa: PLW0603 — whoever held it has stayed behind
    _desks_lock = threading.Lock()
    _desks.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
