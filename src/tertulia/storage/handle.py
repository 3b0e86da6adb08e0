"""The part of an open database that is the same for every one: its state and its notifications."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from tertulia.errors import IllegalMove, StoreError
from tertulia.storage.base import Transaction
from tertulia.storage.notify import notifier_of

T = TypeVar("T")


def closed_error() -> StoreError:
    """Return the error of every call of a store that was closed."""
    return StoreError("The store is closed.", hint="Open it again with tertulia.open(…).")


class DatabaseHandle(ABC):
    """An open database, until it is closed or its process forks."""

    def __init__(self, name: str, identity: str) -> None:
        self._name = name
        self._identity = identity
        self._pid = os.getpid()
        self._closed = False
        self._notifier = notifier_of(identity)
        self._changes = 0
        self._last_state: tuple[Any, ...] | None = None  # None until `count_changes` is called
        self._changes_lock = threading.Lock()

    @abstractmethod
    def write(self, work: Callable[[Transaction], T], *, lane: str | None = None) -> T: ...

    @abstractmethod
    def _commit_state(self) -> tuple[Any, ...]:
        """Return a tuple whose first value is another one after each commit, of any process."""

    @abstractmethod
    def _is_one_commit(self, before: tuple[Any, ...], after: tuple[Any, ...]) -> bool:
        """Return whether only one commit lies between two states."""

    def count_changes(self) -> int:
        # Open pages of the console are woken by this count: decision 0038.
        with self._changes_lock:
            self._look_for_changes()
            return self._changes

    def write_quietly(self, work: Callable[[Transaction], T]) -> T:
        with self._changes_lock:
            if self._last_state is None:  # nobody counts
                return self.write(work)
            self._look_for_changes()
            before = self._last_state
            result = self.write(work)
            after = self._commit_state()
            if self._is_one_commit(before, after):
                self._last_state = after
            return result

    def _look_for_changes(self) -> None:
        """Count a change if something was committed since the last look; needs the lock."""
        state = self._commit_state()
        if self._last_state is None or state[0] != self._last_state[0]:
            self._changes += 1
        self._last_state = state

    @property
    def name(self) -> str:
        return self._name

    @property
    def identity(self) -> str:
        return self._identity

    @property
    def is_closed(self) -> bool:
        return self._closed

    def notifications(self, channel: str) -> int:
        return self._notifier.notifications(channel)

    def _refuse_inside(self, threads: Iterable[int]) -> None:
        """Raise if this thread is one of those that are inside a call of the store.

        A signal handler that closes the store it interrupted would wait for itself.
        """
        if threading.get_ident() in threads:
            raise IllegalMove(
                "The store cannot be closed from within one of its calls.",
                hint="Close it when the call is over; from a signal handler, raise SystemExit.",
            )

    def _check_open(self) -> None:
        """Raise `StoreError` if the handle was closed."""
        if self._closed:
            raise closed_error()

    def _check_usable(self) -> None:
        """Raise `StoreError` if the handle was closed, or belongs to the parent of this process."""
        self._check_open()
        if os.getpid() != self._pid:
            raise StoreError(
                "This store was opened before the process forked.",
                hint="Open it again in the new process.",
            )
