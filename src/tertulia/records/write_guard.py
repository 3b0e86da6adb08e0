"""Writes that a caller can still call off while they wait for the database."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

from tertulia.errors import IllegalMove
from tertulia.records.store_context import StoreContext
from tertulia.storage.base import Database, Transaction

T = TypeVar("T")


class WriteGuard:
    """Decides, once, whether writes begin or are called off.

    A write waits for its turn in a thread that nobody can interrupt. Without a guard, a task that
    is cancelled meanwhile goes on, and the write happens later, unnoticed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._has_begun = False
        self._is_called_off = False

    def call_off(self) -> bool:
        """Refuse all writes from now on; return False if one has begun already."""
        with self._lock:
            self._is_called_off = not self._has_begun
            return self._is_called_off

    def begin(self) -> None:
        """Note that a write begins; raise `IllegalMove` if it was called off."""
        with self._lock:
            if self._is_called_off:
                raise IllegalMove("The write was called off before it began.")
            self._has_begun = True

    def context(self, context: StoreContext) -> StoreContext:
        """Return the context with a database that asks this guard within each write."""
        return context._replace(db=cast(Database, _GuardedDatabase(context.db, self)))


class _GuardedDatabase:
    """A database whose writes ask a guard when they have the write lock."""

    def __init__(self, db: Database, guard: WriteGuard) -> None:
        self._db = db
        self._guard = guard

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)

    def write(self, work: Callable[[Transaction], T], **options: Any) -> T:
        """Run a function in a write transaction, unless the guard refuses it."""

        def guarded(tx: Transaction) -> T:
            self._guard.begin()
            return work(tx)

        return self._db.write(guarded, **options)
