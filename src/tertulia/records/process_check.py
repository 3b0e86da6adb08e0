"""The check whether background processes run, before a policy ends their session.

`Settings.has_active_processes` is user code: it may be slow and may call the store, so it is never
called within a transaction. A transaction that needs its answer raises `NeedsProcessCheck` and is
rolled back; the function is called, and the transaction runs again with the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from tertulia.records.store_context import StoreContext
from tertulia.storage.base import Transaction

T = TypeVar("T")

# For each key that was checked: whether processes run for it.
ProcessAnswers = Mapping[str, bool]
NO_ANSWERS: Final[ProcessAnswers] = {}


class NeedsProcessCheck(Exception):
    """A transaction must know first whether processes run for `key`; nothing was stored."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self.key = key


def write_with_process_check(
    context: StoreContext,
    work: Callable[[Transaction, ProcessAnswers], T],
    *,
    lane: str | None = None,
) -> T:
    """Run a write transaction that may need the process check; return its result."""
    answers: dict[str, bool] = {}
    while True:
        try:
            return context.db.write(lambda tx: work(tx, answers), lane=lane)
        except NeedsProcessCheck as needed:
            answers[needed.key] = context.has_processes(needed.key)


def is_protected(tx: Transaction, context: StoreContext, key: str, answers: ProcessAnswers) -> bool:
    """Return whether a process runs for a key, and keeps its session from ending by policy.

    Raise `NeedsProcessCheck` if only `Settings.has_active_processes` can tell.
    """
    if has_running_process(tx, key):
        return True
    if context.settings.has_active_processes is None:
        return False
    if key not in answers:
        raise NeedsProcessCheck(key)
    return answers[key]


def has_running_process(tx: Transaction, key: str) -> bool:
    """Return whether a process that the store knows runs for a key."""
    return tx.one("process_is_running_for", {"key": key}) is not None
