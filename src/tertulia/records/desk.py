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

_desks: weakref.WeakValueDictionary[str, Desk] = weakref.WeakValueDictionary()
_desks_lock = threading.Lock()


class Holder(Protocol):
    """A turn that is inside its block."""

    def renew(self) -> bool:
        """Prolong the lease; whether the session is still this turn's."""


class Desk:
    """The turns of this process on one database."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, tuple[Holder, float]] = {}
        self._bells: dict[str, list[Callable[[], None]]] = {}
        self._hurry = threading.Event()
        self._is_renewing = False

    def holds(self, session_id: str) -> bool:
        """Whether a turn of this process is inside that session."""
        return session_id in self._held

    def take(self, session_id: str, holder: Holder, every: float) -> None:
        """A turn is inside from now on; its lease is renewed `every` so many seconds."""
        with self._lock:
            self._held[session_id] = holder, every
            is_renewing, self._is_renewing = self._is_renewing, True
        if not is_renewing:
            threading.Thread(target=self._renew, name="tertulia-leases", daemon=True).start()
        else:
            self._hurry.set()

    def leave(self, session_id: str, holder: Holder, key: str) -> None:
        self._drop(session_id, holder)
        with self._lock:
            bells = list(self._bells.get(key, ()))
        for bell in bells:
            bell()

    def listen(self, key: str, bell: Callable[[], None]) -> None:
        with self._lock:
            self._bells.setdefault(key, []).append(bell)

    def ignore(self, key: str, bell: Callable[[], None]) -> None:
        with self._lock:
            bells = self._bells.get(key, [])
            if bell in bells:
                bells.remove(bell)
            if not bells:
                self._bells.pop(key, None)

    def _drop(self, session_id: str, holder: Holder) -> None:
        with self._lock:
            if session_id in self._held and self._held[session_id][0] is holder:
                del self._held[session_id]
