"""Fault points: a callback right before and right after each commit of a store.

A test can kill its process there, raise an error, or count commits:

    watch_commits(store, lambda number, moment: die() if number == 3 else None)

Before a commit, all statements of the transaction have run, or those that are sent together with
the commit (`Database.attempt`) were not sent; after it, everything is stored and only the caller
does not know yet. If the callback raises before a commit, nothing is stored.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

from tertulia.storage.base import Row, Step, Transaction
from tertulia.store import Store

T = TypeVar("T")

Moment = Literal["before", "after"]


def watch_commits(store: Store, call: Callable[[int, Moment], Any]) -> None:
    """Call `call(number, moment)` around the write transactions of this handle, counted from 1.

    Only the calling thread is watched, so lease renewal and indexing are not disturbed.
    """
    write, attempt = store.context.db.write, store.context.db.attempt
    thread = threading.get_ident()
    number = 0

    def watched(work: Callable[[Transaction], T], *, lane: str | None = None) -> T:
        nonlocal number
        if threading.get_ident() != thread:
            return write(work, lane=lane)
        number += 1

        def work_then_call(tx: Transaction) -> T:
            result = work(tx)
            call(number, "before")
            return result

        result = write(work_then_call, lane=lane)
        call(number, "after")
        return result

    def watched_attempt(steps: Sequence[Step], *, lanes: Sequence[str]) -> list[list[Row]] | None:
        nonlocal number
        if threading.get_ident() != thread:
            return attempt(steps, lanes=lanes)
        number += 1
        call(number, "before")
        results = attempt(steps, lanes=lanes)
        if results is None or not any(results):
            number -= 1  # nothing was stored, and the write that follows is counted
        else:
            call(number, "after")
        return results

    setattr(store.context.db, "attempt", watched_attempt)  # noqa: B010 — as below
    setattr(store.context.db, "write", watched)  # noqa: B010 — a type checker lets no method be replaced
