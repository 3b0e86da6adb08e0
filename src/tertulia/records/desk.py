"""What turns of one process know of each other, for one database.

None of it decides anything: whether a turn may enter is decided in the database. The desk holds
back a turn while another of this process is still inside its `with` block, wakes whoever waits
without their having to ask the database again and again, and renews leases during long calls.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Protocol

_desks: weakref.WeakValueDictionary[str, Desk] = weakref.WeakValueDictionary()
_desks_lock = threading.Lock()


class Holder(Protocol):
    """A turn that is inside its block."""

    def renew(self) -> None:
        """Prolong the lease; what goes wrong shows at the next write."""


class Desk:
    """The turns of this process on one database."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[int, Holder] = {}
        self._bells: dict[str, list[Callable[[], None]]] = {}
        self._wake = threading.Event()
        self._renewing = False

    def holds(self, session: int) -> bool:
        """Whether a turn of this process is inside that session."""
        return session in self._held

    def take(self, session: int, holder: Holder, every: float) -> None:
        with self._lock:
            self._held[session] = holder
            starts = not self._renewing
            self._renewing = True
        if starts:
            thread = threading.Thread(
                target=self._renew, args=(every,), name="tertulia-leases", daemon=True
            )
            thread.start()

    def leave(self, session: int, holder: Holder, key: str) -> None:
        with self._lock:
            if self._held.get(session) is holder:
                del self._held[session]
            bells = list(self._bells.get(key, ()))
            if not self._held:
                self._wake.set()
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

    def _renew(self, every: float) -> None:
        while True:
            if self._wake.wait(every):
                with self._lock:
                    self._wake.clear()
                    if not self._held:
                        self._renewing = False
                        return
            for holder in list(self._held.values()):
                holder.renew()


def desk_of(database: str) -> Desk:
    """The desk of a database, the same one for every handle of this process."""
    with _desks_lock:
        found = _desks.get(database)
        if found is None:
            found = _desks[database] = Desk()
        return found
