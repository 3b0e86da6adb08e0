"""The part of an open database that is the same for every one: its state and its notifications."""

from __future__ import annotations

import os

from tertulia.errors import StoreError
from tertulia.storage.notify import notifier_of


class DatabaseHandle:
    """An open database, until it is closed or its process forks."""

    def __init__(self, name: str, identity: str) -> None:
        self._name = name
        self._identity = identity
        self._pid = os.getpid()
        self._closed = False
        self._notifier = notifier_of(identity)

    @property
    def name(self) -> str:
        return self._name

    @property
    def identity(self) -> str:
        return self._identity

    @property
    def is_closed(self) -> bool:
        return self._closed

    def free_bytes(self) -> int | None:
        return None

    def notifications(self, channel: str) -> int:
        return self._notifier.notifications(channel)

    def _check_usable(self) -> None:
        """Raise `StoreError` if the handle was closed, or belongs to the parent of this process."""
        if self._closed:
            raise StoreError("The store is closed.", hint="Open it again with tertulia.open(…).")
        if os.getpid() != self._pid:
            raise StoreError(
                "This store was opened before the process forked.",
                hint="Open it again in the new process.",
            )
